# fish completion for gpuward.  tools/check-docs tells when this and `gpuward --help` disagree.
complete -c gpuward -f
set -l commands list snapshot env doctor characterise help
set -l none "not __fish_seen_subcommand_from $commands"
set -l characterise "__fish_seen_subcommand_from characterise"
set -l snapshot "__fish_seen_subcommand_from snapshot"
set -l uuids "gpuward list --json 2>/dev/null | sed -n 's/^ *\"uuid\": \"\(GPU-[^\"]*\)\".*/\1/p'"
set -l scenarios "gpuward list --simulate=help 2>/dev/null | sed -n 's/^  \([a-z0-9-]\{1,\}\) .*/\1/p'"

complete -c gpuward -n $none -a list -d "the GPUs of this machine"
complete -c gpuward -n $none -a snapshot -d "the machine and its GPUs now"
complete -c gpuward -n $none -a env -d "what a published result should say about this machine"
complete -c gpuward -n $none -a doctor -d "what is missing on this machine and how to mend it"
complete -c gpuward -n $none -a characterise -d "learns what the power sensors of the GPUs do"
complete -c gpuward -n $none -a help -d "the help"

complete -c gpuward -l gpu -x -a "visible ($uuids)" -d "only these GPUs"
complete -c gpuward -s j -l json -d "print JSON"
complete -c gpuward -l backend -x -a "auto all nvml nvidia-smi amdgpu intel none" -d "how to reach the GPUs"
complete -c gpuward -l nvml-library -r -F -d "this libnvidia-ml.so.1"
complete -c gpuward -l simulate -a "help ($scenarios)" -d "simulated GPUs"
complete -c gpuward -l wake -d "open GPUs that are asleep"
complete -c gpuward -l timeout -x -d "give up on a driver call"
complete -c gpuward -l root -x -a "(__fish_complete_directories)" -d "read /proc and /sys below"
complete -c gpuward -l color -x -a "auto always never" -d "colour"
complete -c gpuward -s q -l quiet -d "only results and errors"
complete -c gpuward -s v -l verbose -d "also what is not there"
complete -c gpuward -s h -l help -d "help"
complete -c gpuward -s V -l version -d "version"

complete -c gpuward -n $snapshot -s w -l watch -d "again and again"
complete -c gpuward -n $snapshot -l settle -x -d "wait before the second CPU reading"
complete -c gpuward -n $snapshot -s a -l all -d "also what is costly to ask"
complete -c gpuward -n $snapshot -l no-processes -d "do not list processes"

complete -c gpuward -n $characterise -l active -d "also with a load of its own"
complete -c gpuward -n $characterise -l show -d "only show what is known"
complete -c gpuward -n $characterise -l no-save -d "do not keep what is learned"
