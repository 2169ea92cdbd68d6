//go:build boot

package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestThreeMachines: three machines on one private network, each with answers
// and a disk for data, form a cluster and serve a real minion through any of
// them, also when one loses its power. With KVM, or SALTERN_SLOW, that one comes
// back, and another is restarted in turn: without KVM that overtakes two cores,
// and is seen in containers, TestCluster. They start one after the other: a start
// takes a processor, and what nodes that join at once do is seen there as well.
// Without KVM their volume is not encrypted either: three emulated machines were healthy
// after 2,050 s with TLS, and after 792 s without it. TestCluster's is encrypted.
func TestThreeMachines(t *testing.T) {
	segment := newSegment(t)
	tls := os.Getenv("SALTERN_KVM") != ""
	began := time.Now()
	seen := func(what string) { t.Helper(); t.Logf("%4d s: %s", int(time.Since(began).Seconds()), what) }
	var all []*vm
	whole := func() {
		t.Helper()
		var names []string
		for i := range all {
			names = append(names, fmt.Sprintf("vm-%d", i+1))
		}

		for _, v := range all {
			v.wait(t, strings.Join(names, " "),
				"applianced status | grep -A9 HEALTHY | grep -o '^ *vm-[1-3]' | sort -u | xargs")
		}

		seen("healthy: " + strings.Join(names, " "))
	}

	for i := 1; i <= 3; i++ {
		answers := fmt.Sprintf("node: vm-%[1]d\naddress: 10.90.1.%[1]d\nsecret: a-secret-for-three-machines-012345\nstorage: {kind: volume, tls: %[2]t}\ndata_disk: /dev/vdb\n"+
			"network: {interface: ens17, method: static, address: 10.90.1.%[1]d/24}\n", i, tls)
		if i == 1 {
			answers += "mode: form\ncluster_id: blue\n"
		} else {
			answers += "mode: join\npeers: [10.90.1.1]\n"
		}

		v := newVM(t, vmOptions{number: 10 + i, answers: answers, data: "4G", segment: segment, cpus: 1})
		v.start(t)
		all = append(all, v)
		whole()
	}

	t.Log(all[0].run(t, "applianced status; sudo gluster volume info; "+memory))

	dir := lab.Dir(t)
	lab.WriteTree(t, dir, map[string]string{"etc/minion": fmt.Sprintf(
		"id: web1\nmaster: %s\nroot_dir: %[2]s\npki_dir: %[2]s/pki\ncachedir: %[2]s/cache\nsock_dir: %[2]s/sock\nlog_file: %[2]s/log\npidfile: %[2]s/pid\nuser: root\nacceptance_wait_time: 5\nauth_timeout: 60\nrandom_startup_delay: 0\nenable_fqdns_grains: False\n",
		all[0].address(), dir)})
	lab.Start(t, "salt-minion", filepath.Join(dir, "out"),
		filepath.Join(lab.Venv(t, lab.Newest), "salt-minion"), "-c", filepath.Join(dir, "etc"))
	all[1].wait(t, "web1", "sudo salt-key -l un")

	// Its mount may be made anew: a slow machine loses it while the volume grows.
	all[2].wait(t, "web1", "sudo salt-key -y -a web1 && sudo salt-key -l acc")
	answers := func(v *vm) {
		t.Helper()
		v.wait(t, "web1: True", "sudo salt --out txt -t 60 web1 test.ping")
		seen(fmt.Sprintf("the minion answers through vm %d", v.number))
	}

	for _, v := range all {
		answers(v)
	}

	all[2].cut()
	all[1].wait(t, "unreachable", "applianced status || true")
	seen("vm-3 is known to be away")
	answers(all[1])

	if out, err := all[1].ssh(nil, "sudo applianced reboot"); err == nil ||
		!strings.Contains(out, "vm-3 is unreachable") {
		t.Errorf("a machine restarts while another is away: %v %s", err, out)
	}

	if os.Getenv("SALTERN_KVM") == "" && os.Getenv("SALTERN_SLOW") == "" {
		t.Log("NOT TESTED without KVM: the machine without power comes back, another is restarted (SALTERN_SLOW=1 tries)")
		return
	}

	all[2].start(t)
	whole()
	answers(all[2])

	before := all[1].run(t, "cat /proc/sys/kernel/random/boot_id")
	all[1].away("sudo applianced reboot --wait 20m --drain 1m")
	all[1].wait(t, "-", "grep -v "+strings.TrimSpace(before)+" /proc/sys/kernel/random/boot_id")
	seen("vm-2 is back")
	all[0].wait(t, "none", `sudo sh -c '! grep -q "\"turn\"" /var/lib/saltern/nodes.json && echo none'`)
	whole()
	answers(all[1])
}
