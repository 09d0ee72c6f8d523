# Completion of zvaultctl for bash. zvaultctl itself says what may follow, with the names that zvaultd knows.
_zvaultctl() {
    # Not COMP_WORDS: to readline a word ends at each @ and :.
    local line="${COMP_LINE:0:COMP_POINT}" words cur
    read -ra words <<<"$line"
    if [[ $line == *[[:space:]] ]]; then
        words+=("")
    fi
    cur="${words[-1]}"
    local IFS=$'\n'
    mapfile -t COMPREPLY < <(
        COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) _ZVAULTCTL_COMPLETE=complete_bash "${words[0]}" 2>/dev/null
    )
    # So it is given only what stands behind the last @.
    if [[ $cur == *@* && $COMP_WORDBREAKS == *@* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${cur%@*}@"}")
    fi
}
complete -o default -F _zvaultctl zvaultctl
