# After the files have gone. Keys, configuration, accounts and data stay, also when
# the package is purged.
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
