# After the files are there. dpkg: configure [VERSION OF BEFORE], triggered NAMES or
# abort-REASON; rpm: 1 for a new package, 2 for an upgrade. Nothing is enabled or
# started: a master of Salt's may serve.
new=no
case $1:$2 in configure: | 1:) new=yes ;; esac

if [ "$1" != triggered ]; then
  for f in $accounts; do systemd-sysusers "$f" || [ ! -d /run/systemd/system ]; done
  for d in $keys; do
    # What is there stays as it is, with its owner.
    [ -e "$d" ] && continue
    if ! [ -e /etc/salt/master ]; then
      # A host without Salt: tools that root calls must make files for the master.
      mkdir -p /etc/salt/master.d
      printf '# Made with the package %s where there was no Salt.\nuser: salt\n' "$package" >/etc/salt/master.d/saltern.conf
    fi
    mkdir -p "${d%/*}"
    install -d -o salt -g salt -m 0700 "$d"
  done
fi

# A name in /usr/bin is ours to give when nobody has it, or when it leads to the
# alternatives. Salt's packages have links of their own there, which
# update-alternatives would replace: those stay.
for n in $names; do
  if [ "$(readlink "/usr/bin/$n")" = "/etc/alternatives/$n" ] || ! { [ -e "/usr/bin/$n" ] || [ -L "/usr/bin/$n" ]; }; then
    update-alternatives --install "/usr/bin/$n" "$n" "$programs/$n" 50
  elif [ "$new" = yes ]; then
    echo "$package: /usr/bin/$n is another's and stays; ours is $programs/$n"
  fi
done

if [ "$1" != triggered ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ "$new" = no ]; then
    for u in $units; do
      how=try-restart
      if [ "$u" = applianced.service ]; then how=try-reload-or-restart; fi # the new program goes on where this one is
      systemctl "$how" "$u" || echo "$package: $u is not well after the upgrade: systemctl status $u" >&2
    done
  fi
fi
[ "$new" = no ] || [ -z "$next" ] || echo "$package: next: $next"
