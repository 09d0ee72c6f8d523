# Completion of zvaultctl for bash. zvaultctl itself says what may follow, with the names that zvaultd knows.
_zvaultctl() {
    local cur words cword
    _get_comp_words_by_ref -n @: cur words cword
    local IFS=$'\n'
    mapfile -t COMPREPLY < <(
        COMP_WORDS="${words[*]}" COMP_CWORD=$cword _ZVAULTCTL_COMPLETE=complete_bash "${words[0]}" 2>/dev/null
    )
    # To readline a word begins anew after each @, so it is given only what stands behind it.
    if [[ $cur == *@* && $COMP_WORDBREAKS == *@* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${cur%@*}@"}")
    fi
}
complete -o default -F _zvaultctl zvaultctl
