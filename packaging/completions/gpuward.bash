# bash completion for gpuward.  tools/check-docs tells when this and `gpuward --help` disagree.
_gpuward() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local commands="list snapshot env doctor log baseline help"
	local options="--gpu --json --backend --nvml-library --simulate --wake --timeout --root
		--color --quiet --verbose --help --version"
	local word command="" i

	# "--simulate=NAME" comes as three words: bash breaks at '='.
	if [[ $cur == "=" ]]; then
		cur=""
	elif [[ $prev == "=" ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		[[ " $commands " == *" $word "* ]] && command=$word && break
	done
	[[ $command == snapshot ]] && options="$options --watch --settle --all --no-processes"
	[[ $command == log ]] && options="$options --interval --duration --output --force --append --format --fields"
	[[ $command == baseline ]] && options="$options --kind --time --pid --show --clear --ttl"

	case $prev in
	--gpu)
		word=$("${COMP_WORDS[0]}" list --json 2>/dev/null | sed -n 's/^ *"uuid": "\(GPU-[^"]*\)".*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "visible $word" -- "$cur")
		;;
	--backend)
		mapfile -t COMPREPLY < <(compgen -W "auto all nvml nvidia-smi amdgpu intel none" -- "$cur")
		;;
	--color)
		mapfile -t COMPREPLY < <(compgen -W "auto always never" -- "$cur")
		;;
	--simulate)
		word=$("${COMP_WORDS[0]}" list --simulate=help 2>/dev/null | sed -n 's/^  \([a-z0-9-]\{1,\}\) .*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "help $word" -- "$cur"; compgen -f -X '!*.toml' -- "$cur")
		;;
	--format)
		mapfile -t COMPREPLY < <(compgen -W "csv jsonl" -- "$cur")
		;;
	--kind)
		mapfile -t COMPREPLY < <(compgen -W "no-context context-idle hot-idle" -- "$cur")
		;;
	--nvml-library | --output)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	--root)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		;;
	--timeout | --settle | --watch | --interval | --duration | --fields | --time | --pid | --ttl) ;;
	*)
		if [[ $cur == -* || -n $command ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
		else
			mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
		fi
		;;
	esac
}
complete -F _gpuward gpuward
