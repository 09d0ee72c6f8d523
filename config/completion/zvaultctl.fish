# Completion of zvaultctl for fish. zvaultctl itself says what may follow, with the names that zvaultd knows.
function __zvaultctl_complete
    set -lx _ZVAULTCTL_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION $argv[1]
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp)
    zvaultctl 2>/dev/null
end
complete --command zvaultctl --no-files --arguments '(__zvaultctl_complete get-args)' --condition '__zvaultctl_complete is-args'
