//go:build e2e && appliance

package e2e

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/image/bundle"
	"saltern/image/grubenv"
	"saltern/supervisor/api"
	"saltern/supervisor/upgrade/rollout"
	"saltern/test/lab"
)

// asMachine has programs find the files of a machine made from the image below HOME:
// slots, boot loader, kernel command line, keys, and what restarts the machine.
func asMachine(t *testing.T) string {
	return lab.Altered(t,
		lab.Alteration{
			File: "supervisor/upgrade/slots.go",
			Old:  "func or(s, usual string) string {\n",
			New:  "func or(s, usual string) string {\n\tusual = os.Getenv(\"HOME\") + usual\n",
		},
		lab.Alteration{
			File: "image/bundle/bundle.go",
			Old:  `filepath.Join(d, "*.pem")`,
			New:  `filepath.Join(os.Getenv("HOME"), d, "*.pem")`,
		},
		lab.Alteration{
			File: "supervisor/internal/upgrading/system.go",
			Old:  "bootIDs,\n",
			New:  "os.Getenv(\"HOME\") + bootIDs,\n",
		},
		lab.Alteration{
			File: "cmd/applianced/console.go",
			Old:  `exec.Command("systemctl", verb)`,
			New:  `exec.Command(os.Getenv("HOME")+"/systemctl", verb)`,
		})
}

// imaged is a node on a machine with two slots. The test is its boot loader.
type imaged struct {
	*lab.Appliance
	home string
	bad  bool // what is tried does not start
}

func newImaged(t *testing.T, a *lab.Appliance, programs, key string) *imaged {
	t.Helper()
	m := &imaged{Appliance: a, home: lab.Dir(t)}
	m.Programs = filepath.Join(m.home, "bin")
	env, err := grubenv.Env{"slot": "a"}.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	for path, text := range map[string]string{
		"efi/grub/grubenv": string(env), "efi/a/version": "1\n", "efi/b/.keep": "",
		"dev/disk/by-partlabel/root-a": strings.Repeat("\x00", 1<<20), "dev/disk/by-partlabel/root-b": strings.Repeat("\x00", 1<<20),
		"etc/saltern/upgrade-keys/own.pem": key, "systemctl": "#!/bin/sh\n: > " + m.home + "/reboot\n",
		"bin/applianced": "#!/bin/sh\nexport HOME=" + m.home + "\nexec " + programs + "/applianced \"$@\"\n",
	} {
		path = filepath.Join(m.home, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}

	m.boot(t, "a", "1", "2025-01-01T00:00:00Z", "")
	return m
}

// boot starts the version in a slot.
func (m *imaged) boot(t *testing.T, slot, version, created, try string) {
	t.Helper()
	for path, text := range map[string]string{
		"proc/cmdline": "quiet saltern.slot=" + slot + try + "\n", "proc/sys/kernel/random/boot_id": rand.Text() + "\n",
		"etc/os-release": "VARIANT_ID=cloud\nIMAGE_VERSION=" + version + "\nIMAGE_CREATED=" + created + "\n",
	} {
		path = filepath.Join(m.home, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// reboots does what was asked of the machine: power off, boot loader, start, and, when the
// node serves, what keeps the version. It reports whether something was asked.
func (m *imaged) reboots(t *testing.T) bool {
	t.Helper()
	if os.Remove(filepath.Join(m.home, "reboot")) != nil {
		return false
	}

	m.Kill()
	path := filepath.Join(m.home, "efi/grub/grubenv")
	env, err := grubenv.Load(path)
	if err != nil {
		t.Fatal(err)
	}

	next := env["next"]
	if m.bad { // both tries are used up
		delete(env, "next")
		if err := env.Save(path); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(m.home, "proc/sys/kernel/random/boot_id"), []byte(rand.Text()),
			0o644); err != nil {
			t.Fatal(err)
		}

		m.Launch(t)
		return true
	}

	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(m.home, "efi", next, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}

	m.boot(t, next, read("version"), read("created"), " saltern.try")
	m.Launch(t)
	lab.Eventually(t, 90*time.Second, m.Name+" serves, drained as it is until the version is kept", func() error {
		d, err := m.Status(t)
		if err == nil && d.ServingSince == nil {
			err = errors.New(string(d.Health))
		}
		return err
	})

	if r := m.Applianced(t, "upgrade", "confirm", "--now"); r.Code != 0 {
		t.Errorf("keep the version: %+v", r)
	}

	return true
}

// upgradeOf follows an upgrade that a node drives, and restarts the machines.
func upgradeOf(t *testing.T, driver *imaged, all []*imaged, path string, while func()) rollout.Progress {
	t.Helper()
	c := api.NewClient(driver.Dir + "/run/applianced.sock")
	if err := c.Upgrade(t.Context(), api.UpgradeRequest{Path: path}); err != nil {
		t.Fatal(err)
	}

	if while != nil {
		while()
	}

	var p rollout.Progress
	lab.Eventually(t, 300*time.Second, "the upgrade ends", func() error {
		for _, m := range all {
			if m.reboots(t) && m == driver {
				return nil
			}
		}

		now, err := c.Upgrading(t.Context())
		if err == nil {
			p = now
		}

		if err != nil || p.Running {
			return fmt.Errorf("%+v %w", p, err)
		}

		return nil
	})

	return p
}

// TestUpgradeAll upgrades three nodes from one of them: by the supervisors, the node API
// and the cluster's turn as they are, on machines whose slots are files and whose boot
// loader is the test. One goes back; another node goes on; the one that drives is last.
func TestUpgradeAll(t *testing.T) {
	t.Parallel()
	private, public, err := bundle.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}

	key, err := bundle.PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := lab.Dir(t)
	made := func(version string, at time.Time) string {
		var files []string
		for _, p := range bundle.Parts {
			files = append(files, filepath.Join(dir, p))
			if err := os.WriteFile(files[len(files)-1], bytes.Repeat([]byte(p+version), 20000), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		var b bytes.Buffer
		if err := bundle.Create(&b, bundle.Manifest{Version: version, Flavour: "cloud", Created: at}, files,
			key); err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(dir, version+".upgrade")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	day := time.Now().UTC().Truncate(24 * time.Hour)
	second, third := made("2", day.Add(-time.Hour)), made("3", day)
	programs := asMachine(t)
	var all []*imaged
	// which are upgraded in the order in which they joined
	for i, a := range threeNodes(t, lab.NewNetwork(t, "upg", "10.77")) {
		m := newImaged(t, a, programs, string(public))
		m.Launch(t)
		m.WaitReady(t, i+1)
		all = append(all, m)
	}

	for _, m := range all {
		m.WaitReady(t, 3)
	}

	if r := all[0].Applianced(t, "upgrade", "--all", "--dry-run", second); r.Code != 0 ||
		strings.Count(r.Out, "takes version 2 (runs 1)") != 3 {
		t.Errorf("dry run: %+v", r)
	}

	where := func(p rollout.Progress) (out []string) {
		for _, n := range p.Result.Nodes {
			out = append(out, n.Name+" "+string(n.Where))
		}
		slices.Sort(out)
		return out
	}

	all[2].bad = true
	p := upgradeOf(t, all[1], all, second, func() {
		if r := all[0].Applianced(t, "upgrade", "--all", "--yes", second); r.Code != 1 ||
			!strings.Contains(r.Err, "n2 upgrades all nodes to version 2 since") {
			t.Errorf("a second administrator elsewhere: %+v", r)
		}

		if r := all[1].Applianced(t, "upgrade", "--all", "--yes", second); r.Code != 1 ||
			!strings.Contains(r.Err, "this node upgrades all nodes to version 2 since") {
			t.Errorf("a second administrator here: %+v", r)
		}
	})
	if got := where(p); p.Result.Code != rollout.Stopped ||
		!slices.Equal(got, []string{"n1 new", "n2 written", "n3 back"}) || !strings.Contains(p.Result.Cause, "n3 went back to version 1") {
		t.Fatalf("%s %q: %s", p.Result.Code, got, p.Result.Cause)
	}

	all[2].bad = false
	all[2].WaitReady(t, 3)
	p = upgradeOf(t, all[0], all, second, nil)
	if got := where(p); p.Result.Code != rollout.Upgraded ||
		!slices.Equal(got, []string{"n1 same", "n2 new", "n3 new"}) {
		t.Fatalf("another node goes on: %s %q: %s", p.Result.Code, got, p.Result.Cause)
	}

	p = upgradeOf(t, all[0], all, third, nil)
	if lines := strings.Join(p.Lines, "\n"); !strings.Contains(lines, "n3: serves with version 3") ||
		!strings.Contains(lines, "n1: restarts") {
		t.Errorf("the one that drives is last: %s", lines)
	}

	lab.Eventually(t, 60*time.Second, "all have it", func() error {
		if r := all[1].Applianced(t, "upgrade", "--all", "--dry-run", third); r.Code != 0 ||
			strings.Count(r.Out, "has this version already") != 3 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	if r := all[2].Applianced(t, "upgrade", "--all", "--yes", second); r.Code != 1 ||
		!strings.Contains(r.Err, "runs version 3, built") {
		t.Errorf("an older one: %+v", r)
	}
}
