//go:build boot

package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/lab"
)

// TestThreeMachines: three machines on one private network, each with answers
// and a disk for data, form a cluster and serve a real minion through any of
// them; one loses its power and comes back, one is restarted in turn.
func TestThreeMachines(t *testing.T) {
	segment := 20000 + os.Getpid()%10000
	var all []*vm
	for i := 1; i <= 3; i++ {
		answers := fmt.Sprintf("node: vm-%[1]d\naddress: 10.90.1.%[1]d\nsecret: a-secret-for-three-machines-012345\nstorage: {kind: volume}\ndata_disk: /dev/vdb\n"+
			"network: {interface: ens17, method: static, address: 10.90.1.%[1]d/24}\n", i)
		if i == 1 {
			answers += "mode: form\ncluster_id: blue\n"
		} else {
			answers += "mode: join\npeers: [10.90.1.1]\n"
		}
		v := newVM(t, vmOptions{number: 10 + i, answers: answers, data: "4G", segment: segment, cpus: 1})
		v.start(t)
		all = append(all, v)
	}
	whole := func() {
		t.Helper()
		for _, v := range all {
			for i := range all {
				v.wait(t, fmt.Sprintf("vm-%d", i+1), "applianced status | grep -A9 HEALTHY")
			}
		}
	}
	whole()
	t.Log(all[0].run(t, "applianced status; sudo gluster volume info; "+memory))

	dir := lab.Dir(t)
	lab.WriteTree(t, dir, map[string]string{"etc/minion": fmt.Sprintf(
		"id: web1\nmaster: %s\nroot_dir: %[2]s\npki_dir: %[2]s/pki\ncachedir: %[2]s/cache\nsock_dir: %[2]s/sock\nlog_file: %[2]s/log\npidfile: %[2]s/pid\nuser: root\nacceptance_wait_time: 5\nauth_timeout: 60\nrandom_startup_delay: 0\nenable_fqdns_grains: False\n",
		all[0].address(), dir)})
	lab.Start(t, "salt-minion", filepath.Join(dir, "out"), filepath.Join(lab.Venv(t, lab.Newest), "salt-minion"), "-c", filepath.Join(dir, "etc"))
	all[1].wait(t, "web1", "sudo salt-key -l un")
	all[2].run(t, "sudo salt-key -y -a web1")
	answers := func(v *vm) { t.Helper(); v.wait(t, "web1: True", "sudo salt --out txt -t 60 web1 test.ping") }
	for _, v := range all {
		answers(v)
	}

	all[2].cut()
	all[1].wait(t, "unreachable", "applianced status || true")
	answers(all[1])
	if out, err := all[1].ssh(nil, "sudo applianced reboot"); err == nil || !strings.Contains(out, "vm-3 is unreachable") {
		t.Errorf("a machine restarts while another is away: %v %s", err, out)
	}
	all[2].start(t)
	whole()
	answers(all[2])

	before := all[1].run(t, "cat /proc/sys/kernel/random/boot_id")
	_, _ = all[1].ssh(nil, "sudo applianced reboot --wait 20m --drain 1m") // the connection ends with it
	all[1].wait(t, "-", "grep -v "+strings.TrimSpace(before)+" /proc/sys/kernel/random/boot_id")
	all[0].wait(t, "none", `sudo sh -c '! grep -q "\"turn\"" /var/lib/saltern/nodes.json && echo none'`)
	whole()
	answers(all[1])
}
