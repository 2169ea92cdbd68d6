# Before the files go. dpkg: remove, upgrade, deconfigure or failed-upgrade; rpm:
# 0 when it is the last version, else 1.
case $1 in remove | 0) ;; *) exit 0 ;; esac

if [ -d /run/systemd/system ]; then
  for u in $units; do systemctl disable --now --quiet "$u" || echo "$package: $u does not stop" >&2; done
fi

# A link that another package has put over ours since is put aside meanwhile:
# update-alternatives would remove it. Begun again, this goes on where it was.
for n in $names; do
  link=/usr/bin/$n kept=/usr/bin/.$n.saltern
  if [ -L "$link" ] && [ "$(readlink "$link")" != "/etc/alternatives/$n" ]; then mv -T "$link" "$kept"; fi
  update-alternatives --remove "$n" "$programs/$n" || true # it may not be there
  if [ -L "$kept" ]; then mv -T "$kept" "$link"; fi
done
