//go:build nspawn

package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plain boots a plain Debian 12 with what scripts/test-packages has made in /root:
// our packages of versions 1.2.3 and 1.2.4, and one of Salt 3008.3.
func plain(t *testing.T, n *network, number int) *machine {
	t.Helper()
	dir := os.Getenv("SALTERN_PACKAGES")
	if dir == "" {
		t.Skip("NOT TESTED: by hand: make test-packages")
	}

	able(t)
	made, err := filepath.Glob(filepath.Join(dir, "salt*"))
	if err != nil || len(made) < 17 {
		t.Fatalf("%s has %v (%v)", dir, made, err)
	}

	put := map[string]string{}
	for _, f := range made {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		put["root/"+filepath.Base(f)] = string(b)
	}

	m := boot(t, n, number, put)
	m.wait(t, 120*time.Second, "active", "systemctl", "is-active", "multi-user.target")
	return m
}

// sh runs a line of shell inside.
func (m *machine) sh(t *testing.T, line string) string {
	t.Helper()
	return strings.TrimSpace(m.run(t, "sh", "-ec", "export DEBIAN_FRONTEND=noninteractive; cd /root; "+line))
}

// salts is all of an installed Salt that our packages could change: its names,
// its configuration and keys with their owners, whether it runs.
func (m *machine) salts(t *testing.T) string {
	t.Helper()
	return m.sh(t, `ls -l --time-style=+ /usr/bin/ | grep ' salt'; find /etc/salt -printf '%M %u %g %p\n' | sort
dpkg --verify salt-master; systemctl is-enabled salt-master; ls /etc/alternatives /var/lib/dpkg/alternatives | grep salt || true`)
}

func (m *machine) mainPID(t *testing.T, unit string) string {
	t.Helper()
	return m.sh(t, "systemctl show -P MainPID "+unit)
}

// TestPackagesBesideSalt: beside a Salt master that serves a minion the packages
// change nothing and start nothing. Then ours serves the same minion by the same
// configuration, is upgraded while it runs, and removed: Salt is as it was.
func TestPackagesBesideSalt(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	m := plain(t, n, 1)
	m.sh(t, "dpkg -i ./salt-master_3008.3_all.deb; systemctl enable --now salt-master")

	// Salt's default waits 1 to 11 s, a random time, before it connects again.
	n.minion(t, 50, "web1", m.Address, "recon_default: 200", "recon_max: 1000")
	m.wait(t, 180*time.Second, "web1", "salt-key", "-l", "un")
	m.sh(t, "salt-key -y -a web1")
	m.wait(t, 120*time.Second, "web1: True", "salt", "--out", "txt", "web1", "test.ping")
	before, pid := m.salts(t), m.mainPID(t, "salt-master")

	out := m.sh(t, "apt-get install -y ./saltern-*_1.2.3-1_*.deb")
	if now := m.salts(t); now != before {
		t.Errorf("the installation changed\n%s\ninto\n%s", before, now)
	}

	if now := m.mainPID(t, "salt-master"); now != pid || pid == "0" {
		t.Errorf("Salt's master was %s and is %s", pid, now)
	}

	if !strings.Contains(out, "/usr/bin/salt-key is another's") ||
		!strings.Contains(out, "enable --now saltern-master") {
		t.Errorf("the installation says\n%s", out)
	}

	for _, u := range []string{"saltern-master", "saltern-api", "saltern-lb", "applianced"} {
		if got := m.sh(t, "systemctl is-enabled "+u+" || true; systemctl is-active "+u+
			" || true"); got != "disabled\ninactive" {
			t.Errorf("%s is %s", u, got)
		}
	}

	switches(t, m)
	m.wait(t, 30*time.Second, "web1: True", "salt", "--out", "txt", "web1", "test.ping") // Salt's tool, our master

	pid = m.mainPID(t, "saltern-master")
	m.sh(t, "apt-get install -y ./saltern-*_1.2.4-1_*.deb")
	if now := m.mainPID(t, "saltern-master"); now == pid || now == "0" {
		t.Errorf("after the upgrade the master of before runs: %s, %s", pid, now)
	}

	m.wait(t, 60*time.Second, "web1: True", "/usr/lib/saltern/bin/salt", "-t", "1", "--out", "txt", "web1", "test.ping")

	for _, verb := range []string{"remove", "purge"} {
		m.sh(t, "apt-get "+verb+" -y saltern-tools saltern-master saltern-lb saltern-appliance")
		if now := m.salts(t); now != before {
			t.Errorf("%s changed\n%s\ninto\n%s", verb, before, now)
		}
	}

	m.sh(t, "systemctl start salt-master")
	m.wait(t, 120*time.Second, "web1: True", "salt", "--out", "txt", "web1", "test.ping")
}

// switches has our master take the place of Salt's several times, and holds how long
// it is until the minion answers: from the order to stop Salt's. Whether the minion is
// back is asked of the master: a command that is given before waits for
// gather_job_timeout, ten seconds, and would measure that.
func switches(t *testing.T, m *machine) {
	t.Helper()
	var took []time.Duration
	for range 3 {
		began := time.Now()
		m.sh(t, "systemctl stop salt-master; systemctl enable --now saltern-master")
		m.wait(t, 60*time.Second, "web1", "/usr/lib/saltern/bin/salt-run", "manage.present")
		m.wait(t, 60*time.Second, "web1: True", "/usr/lib/saltern/bin/salt", "--out", "txt", "web1", "test.ping")
		took = append(took, time.Since(began).Round(100*time.Millisecond))
		if len(took) < 3 {
			m.sh(t, "systemctl disable --now saltern-master; systemctl start salt-master")
			m.wait(t, 120*time.Second, "web1: True", "salt", "--out", "txt", "web1", "test.ping")
		}
	}

	t.Logf("the minion answers our master after %s, from the order to stop Salt's", took)
	slices.Sort(took)
	if took[1] > 10*time.Second && os.Getenv("SALTERN_STRICT") == "1" { // of a quiet machine
		t.Errorf("that is more than 10 s")
	}
}

// TestPackagesNames: the names in /usr/bin are ours while Salt's package is not
// there, whichever comes and goes first; a removal that is begun twice loses none.
func TestPackagesNames(t *testing.T) {
	t.Parallel()
	m := plain(t, newNetwork(t), 2)
	const names = "salt salt-key salt-run salt-cp salt-master salt-api"
	is := func(when, want string) {
		t.Helper()
		for name := range strings.FieldsSeq(names) {
			target := want + "/" + name
			if want == "" {
				target = "none"
			}

			if got := m.sh(t,
				"[ -L /usr/bin/"+name+" ] || { echo none; exit; }; r=$(readlink /usr/bin/"+name+
					"); case $r in /etc/alternatives/*) r=$(readlink $r);; esac; echo $r"); got != target {
				t.Errorf("%s: %s is %s, want %s", when, name, got, target)
			}
		}
	}

	const ours, salts = "/usr/lib/saltern/bin", "/opt/saltstack/salt"
	install := "dpkg -i ./saltern-tools_1.2.3-1_*.deb ./saltern-master_1.2.3-1_*.deb"
	remove := "dpkg -r saltern-tools saltern-master"
	m.sh(t, install)
	is("alone", ours)

	if out := m.sh(t, "salt --version; salt-master --version"); !strings.Contains(out, "1.2.3") {
		t.Errorf("versions: %s", out)
	}

	m.sh(t, "dpkg -i ./salt-master_3008.3_all.deb")
	is("Salt came", salts)
	m.sh(t, "dpkg -r salt-master")
	is("Salt went", ours)
	m.sh(t, "dpkg -i ./salt-master_3008.3_all.deb")

	// The removal dies where the link is put aside.
	m.sh(t, "mv -T /usr/bin/salt-key /usr/bin/.salt-key.saltern; "+remove)
	is("ours went", salts)
	m.sh(t, install)
	is("ours came second", salts)
	m.sh(t, "dpkg -r salt-master")
	is("Salt went first", ours)
	m.sh(t, remove)
	is("nothing is left", "")

	if left := m.sh(t, "ls -A /usr/bin /etc/alternatives /var/lib/dpkg/alternatives | grep salt || true"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestPackagesAlone: on a host without Salt the master has all it needs, and a
// purge leaves its keys; then the same packages make a node.
func TestPackagesAlone(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	m := plain(t, n, 3)
	m.sh(t,
		"apt-get install -y ./saltern-tools_1.2.3-1_*.deb ./saltern-master_1.2.3-1_*.deb; systemctl enable --now saltern-master")
	n.minion(t, 50, "web1", m.Address)
	m.wait(t, 120*time.Second, "web1", "salt-key", "-l", "un")
	m.sh(t, "salt-key -y -a web1")
	m.wait(t, 120*time.Second, "web1: True", "salt", "--out", "txt", "web1", "test.ping")

	if ps := m.sh(t, "ps -C salt-master -o user="); ps != "salt" {
		t.Errorf("the master runs as %q", ps)
	}

	m.sh(t, "apt-get purge -y saltern-tools saltern-master")
	m.sh(t,
		"test -e /etc/salt/pki/master/master.pem -a -e /etc/salt/pki/master/minions/web1; ! pgrep salt-master; ! systemctl cat saltern-master")

	m.sh(t, "apt-get install -y ./saltern-*_1.2.3-1_*.deb; systemctl enable --now applianced")
	m.put(t, "/root/answers.yaml",
		"mode: form\ncluster_id: prod\nnode: node3\naddress: "+m.Address+"\nstorage: {kind: local}\n")
	m.sh(t, "applianced setup start /root/answers.yaml")
	m.wait(t, 180*time.Second, "HEALTHY", "applianced", "status")

	// The tools ask the node, not what the packages made for a master alone.
	if keys := m.sh(t, "salt-key -l acc; ls /etc/salt/master.d"); strings.Contains(keys, "web1") ||
		!strings.Contains(keys, "saltern.conf") {
		t.Errorf("salt-key of a node says of accepted keys\n%s", keys)
	}

	lb := m.sh(t, "pgrep -u saltern-lb; pgrep -u saltern-master salt-master")
	m.sh(t, "apt-get install -y ./saltern-*_1.2.4-1_*.deb")
	m.wait(t, 120*time.Second, "1.2.4", "applianced", "status", "--json")
	m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")

	if now := m.sh(t, "pgrep -u saltern-lb; pgrep -u saltern-master salt-master"); now == lb {
		t.Errorf("the upgrade left the programs of before: %s", now)
	}
}

// TestPackagesRPM: the scripts of the rpm packages, run by rpm on a running
// systemd: installed, upgraded, removed.
func TestPackagesRPM(t *testing.T) {
	t.Parallel()
	m := plain(t, newNetwork(t), 4)
	rpm := "rpm --dbpath /root/db --nodeps "
	m.sh(t, rpm+"-i ./saltern-*-1.2.3-1.*.rpm")

	if got := m.sh(t,
		"systemctl is-active saltern-master || true; readlink -f /usr/bin/salt-key; stat -c %U:%a /etc/salt/pki/master"); got != "inactive\n/usr/lib/saltern/bin/salt\nsalt:700" {
		t.Errorf("installed: %s", got)
	}

	m.sh(t, "systemctl enable --now saltern-master")
	pid := m.mainPID(t, "saltern-master")
	m.sh(t, rpm+"-U ./saltern-*-1.2.4-1.*.rpm")
	if now := m.mainPID(t, "saltern-master"); now == pid || now == "0" {
		t.Errorf("after the upgrade: %s, before %s", now, pid)
	}

	if got := m.sh(t, "systemctl is-active saltern-master; salt --version"); !strings.Contains(got,
		"active\n") || !strings.Contains(got, "1.2.4") {
		t.Errorf("upgraded: %s", got)
	}

	m.sh(t, rpm+"-e saltern-appliance saltern-lb saltern-master saltern-tools")
	if got := m.sh(t,
		"pgrep salt-master || true; ls /usr/bin /etc/alternatives | grep salt || true; ls /usr/lib/systemd/system | grep saltern || true"); got != "" {
		t.Errorf("left: %s", got)
	}

	m.sh(t, "test -e /etc/salt/pki/master/master.pem")
}
