#!/usr/bin/env python3
"""Measures the joules per generated token, with vLLM or Hugging Face Transformers.

    PYTHONPATH=python python3 python/examples/generate.py MODEL [--engine vllm|transformers] [--tokens 128]

Uses vLLM if it is installed, otherwise Transformers. The loading of the model and one warm-up run are outside the window.
"""
import argparse
import sys

import gpuward

PROMPTS = ["Explain why the sky is blue.", "Write a short poem about the sea."] * 8


def vllm_engine(model, tokens):
    """Returns a function that generates for all prompts and returns the number of new tokens."""
    from vllm import LLM, SamplingParams
    llm, parameters = LLM(model), SamplingParams(max_tokens=tokens, ignore_eos=True)

    def generate():
        return sum(len(o.token_ids) for r in llm.generate(PROMPTS, parameters) for o in r.outputs)

    return generate


def transformers_engine(model, tokens):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    network = AutoModelForCausalLM.from_pretrained(model, device_map="auto", torch_dtype="auto")
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True).to(network.device)

    def generate():
        out = network.generate(**inputs, max_new_tokens=tokens, min_new_tokens=tokens)
        return len(PROMPTS) * (len(out[0]) - len(inputs["input_ids"][0]))

    return generate


ENGINES = {"vllm": vllm_engine, "transformers": transformers_engine}


def engine(options):
    """Returns the engine that the user named, or the first installed engine."""
    missing = []
    for name in [options.engine] if options.engine else ENGINES:
        try:
            return name, ENGINES[name](options.model, options.tokens)
        except ImportError as e:
            missing.append("%s (%s)" % (name, e))
    sys.exit("generate.py: not installed: %s" % ", ".join(missing))


def main():
    options = argparse.ArgumentParser(description="Joules per generated token.")
    options.add_argument("model", help="a name or a folder")
    options.add_argument("--engine", choices=list(ENGINES))
    options.add_argument("--tokens", type=int, default=128, help="new tokens per prompt")
    options.add_argument("--rounds", type=int, default=8, help="how often all prompts are answered")
    options = options.parse_args()
    name, generate = engine(options)
    generate()  # the first call chooses kernels and raises the clocks
    tokens = 0
    try:
        with gpuward.window("generate", record=True) as w:
            for _ in range(options.rounds):
                new = generate()  # returns when all tokens exist, so no synchronisation is needed
                gpuward.tokens(new)
                tokens += new
    except gpuward.GpuwardError as e:
        sys.exit("generate.py: %s" % e)
    if w.simulated:
        print("SIMULATED: no figure is real")
    print("%s: %d tokens in %.2f s, %.1f tokens/s" % (name, tokens, w.seconds, tokens / w.seconds))
    if w.joules is None:
        print("energy unknown: %s" % "; ".join(w.why.values()))
    else:
        print("%s J per token, %s %s" % (w.per(tokens), w.validity, " ".join(w.codes)))
    for series in w.series:
        if series.watts:
            print("GPU %d: %.0f to %.0f W" % (series.gpu, min(series.watts), max(series.watts)))


if __name__ == "__main__":
    main()
