//go:build nspawn

package image

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/image/bundle"
	"saltern/image/grubenv"
	"saltern/test/lab"
)

// TestUpgradeMachines upgrades a cluster of three booted machines with a shared volume and
// a virtual address by `applianced upgrade --all`, while real minions get a job each
// second: no return is lost. Each machine writes the version into its other slot, asks for
// a restart in its turn, and keeps the version itself after two minutes; of all that the
// test is only the boot loader.
func TestUpgradeMachines(t *testing.T) {
	c := newSlots(t)
	c.form(t)
	version := "2-" + c.version
	path := c.bundle(t, version, time.Hour)
	if out, err := exec.Command("cp", path, filepath.Join(c.all[0].state, "new.upgrade")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.all[0].run(t, "systemd-run", "--quiet", "--unit=upgrade", "applianced", "upgrade", "--all", "--yes",
		"/var/lib/saltern/new.upgrade")
	c.until(t, version)
}

// TestUpgradeWindowMachines is the same with nobody who asks: the window is open, and a web
// server offers the version.
func TestUpgradeWindowMachines(t *testing.T) {
	c := newSlots(t)
	ns, address := c.namespace(t, 99)
	dir := c.certify(t, address)
	c.form(t)
	version := "2-" + c.version
	if err := os.Rename(c.bundle(t, version, time.Hour), filepath.Join(dir, "saltern-cloud.upgrade")); err != nil {
		t.Fatal(err)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	lab.Start(t, "web server", filepath.Join(dir, "log"), "ip", "netns", "exec", ns, "env",
		"SALTERN_SERVE="+dir, self, "-test.run", "^TestFileServer$")
	now := time.Now().UTC()
	for _, m := range c.all {
		m.run(t, "sh", "-c",
			fmt.Sprintf(`printf 'upgrade: {url: "https://%s/saltern-{flavour}.upgrade", window: "%s-%s"}\n' >>/etc/saltern/appliance.yaml && applianced reload`,
				address, now.Format("15:04"), now.Add(2*time.Hour).Format("15:04")))
	}

	// With the settings all masters were started anew.
	c.all[0].wait(t, 180*time.Second, "answers=3", "sh", "-c",
		`salt --out txt '*' test.ping | grep -c ": True" | sed s/^/answers=/`)
	c.until(t, version)
	record := c.all[0].wait(t, 10*time.Second, "upgrade.window", "applianced", "audit", "--action", "cluster.upgrade")
	if !strings.Contains(record, version) {
		t.Errorf("the audit record has no %s:\n%s", version, record)
	}

	t.Logf("%s%s", record,
		c.all[0].run(t, "sh", "-c", "applianced history | grep -i upgrade; applianced status | grep Upgrade"))
}

// TestFileServer is what the other one runs in another namespace.
func TestFileServer(t *testing.T) {
	dir := os.Getenv("SALTERN_SERVE")
	if dir == "" {
		t.Skip("called by other tests only")
	}
	t.Fatal(http.ListenAndServeTLS(":443", filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
		http.FileServer(http.Dir(dir))))
}

// slots are machines with two slots each, and minions of theirs.
type slots struct {
	*network
	all     []*slotted
	version string // of the tree
	created time.Time
	key     ed25519.PrivateKey
	public  string
	virtual string
	trusted string // a certificate that machines trust beside the tree's; "": none
	minions []string
	logs    []string // their files
	ran     string   // folder in which each minion notes what it ran
}

// slotted is a machine whose root is the tree below what is in a slot.
type slotted struct {
	*machine
	efi string // its boot partition, seen from outside
}

func newSlots(t *testing.T) *slots {
	t.Helper()
	c := &slots{network: newNetwork(t), ran: lab.Dir(t)}
	c.virtual = c.base + "200"
	release := read(t, "usr/lib/os-release")
	word := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(release)
		if m == nil {
			t.Fatalf("the tree's os-release has no %s", name)
		}
		return m[1]
	}

	c.version = word("IMAGE_VERSION")
	var err error
	if c.created, err = time.Parse(time.RFC3339, word("IMAGE_CREATED")); err != nil {
		t.Fatal(err)
	}

	private, public, err := bundle.GenerateKey()
	if err == nil {
		c.public = string(public)
		c.key, err = bundle.PrivateKey(private)
	}

	if err != nil {
		t.Fatal(err)
	}

	return c
}

// certify makes a certificate for an address, which the machines trust, in a folder.
func (c *slots) certify(t *testing.T, address string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=files", "-addext", "subjectAltName=IP:"+address,
		"-keyout", filepath.Join(dir, "key.pem"), "-out", filepath.Join(dir, "cert.pem")).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl: %v: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	c.trusted = string(b)
	return dir
}

// osRelease is that of a version.
func (c *slots) osRelease(t *testing.T, version string, created time.Time) string {
	t.Helper()
	text := regexp.MustCompile(`(?m)^(IMAGE_VERSION|IMAGE_CREATED|VARIANT_ID)=.*\n`).ReplaceAllString(read(t, "usr/lib/os-release"), "")
	return text + fmt.Sprintf("VARIANT_ID=cloud\nIMAGE_VERSION=%s\nIMAGE_CREATED=%s\n", version,
		created.UTC().Format(time.RFC3339))
}

// bundle makes a signed version: the programs of this checkout with another stamp, over the
// same tree. It is built that much later than the tree.
func (c *slots) bundle(t *testing.T, version string, later time.Duration) (path string) {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	created := c.created.Add(later).Truncate(time.Second)
	lab.WriteTree(t, root, map[string]string{"usr/lib/os-release": c.osRelease(t, version, created)})
	bin := filepath.Join(root, "usr/bin")
	build := exec.Command("go", "build", "-trimpath",
		"-ldflags=-s -w -buildid= -X saltern/internal/release.version="+version, "-o", bin+"/", "./cmd/applianced",
		"./cmd/salt-master", "./cmd/salt-api", "./cmd/salt")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")

	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}

	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build version %s: %v: %s", version, err, out)
	}

	if err := os.Link(bin+"/applianced", bin+"/saltern-lb"); err != nil {
		t.Fatal(err)
	}

	var files []string
	for _, p := range bundle.Parts {
		files = append(files, filepath.Join(dir, p))
	}

	lab.WriteTree(t, dir, map[string]string{"vmlinuz": "no kernel: a container\n", "initrd": "none\n"})
	if out, err := exec.Command("mksquashfs", root, files[2], "-quiet", "-no-progress", "-comp", "zstd",
		"-Xcompression-level", "1").CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v: %s", err, out)
	}

	var b bytes.Buffer
	if err := bundle.Create(&b, bundle.Manifest{Version: version, Flavour: "cloud", Created: created}, files,
		c.key); err != nil {
		t.Fatal(err)
	}

	path = filepath.Join(dir, "v.upgrade")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// slotUnit has a container see what the kernel and the disk of a machine show; slotBind is
// for units that have a /proc of their own.
const slotUnit = `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=mount --bind /efi/cmdline /proc/cmdline
ExecStart=mkdir -p /dev/disk/by-partlabel
ExecStart=ln -sf /efi/root-a /efi/root-b /dev/disk/by-partlabel
`

const slotBind = "[Service]\nBindReadOnlyPaths=/efi/cmdline:/proc/cmdline\n"

// machine boots machine number with the tree's version in slot a.
func (c *slots) machine(t *testing.T, number int, answers string) *slotted {
	t.Helper()
	m := &slotted{machine: prepare(t, c.network, number), efi: t.TempDir()}
	env, err := grubenv.Env{"slot": "a"}.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	one := t.TempDir()
	lab.WriteTree(t, one, map[string]string{"usr/lib/os-release": c.osRelease(t, c.version, c.created)})
	lab.WriteTree(t, m.efi,
		map[string]string{
			"grub/grubenv": string(env),
			"a/version":    c.version + "\n",
			"b/.keep":      "",
			"root-a":       "",
			"root-b":       "",
		})

	m.mount(t, one+":"+tree(t))
	lab.WriteTree(t, m.root,
		map[string]string{
			"etc/saltern/answers.yaml":                            answers,
			"etc/saltern/upgrade-keys/own.pem":                    c.public,
			"etc/systemd/system/test-slot.service":                slotUnit,
			"etc/systemd/system/applianced.service.d/slot.conf":   slotBind,
			"etc/systemd/system/saltern-slot.service.d/slot.conf": slotBind,
			"etc/systemd/system/sysinit.target.d/slot.conf":       "[Unit]\nWants=test-slot.service\n",
			"etc/ssl/certs/ca-certificates.crt": read(t,
				"etc/ssl/certs/ca-certificates.crt") + c.trusted,
		})

	m.boot(t, "a", "")
	return m
}

// boot starts what is mounted, as the boot loader does.
func (m *slotted) boot(t *testing.T, slot, try string) {
	t.Helper()
	line := strings.TrimSpace("saltern.slot=" + slot + " " + try)
	lab.WriteTree(t, m.efi, map[string]string{"cmdline": "quiet " + line + "\n"})
	m.options = append([]string{"--bind=" + m.efi + ":/efi", "--"}, strings.Fields(line)...)
	m.launch(t)
}

// reboots does what the boot loader does when the machine has ended; it reports whether it
// had.
func (m *slotted) reboots(t *testing.T) bool {
	t.Helper()
	select {
	case <-m.ended:
	default:
		return false
	}

	m.cut(t) // its console
	path := filepath.Join(m.efi, "grub/grubenv")
	env, err := grubenv.Load(path)
	if err != nil {
		t.Fatal(err)
	}

	slot, try := env["slot"], ""
	if next := env["next"]; next != "" {
		tries := env["tries"]
		if tries == "0" || tries == "" {
			delete(env, "next")
			delete(env, "tries")
		} else {
			slot = next
			try = "saltern.try"
			env["tries"] = string(tries[0] - 1)
		}

		if err := env.Save(path); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("%s boots slot %s %s", m.Name, slot, try)
	over := t.TempDir()
	if out, err := exec.Command("umount", "-l", m.root).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v: %s", err, out)
	}

	if out, err := exec.Command("mount", "-t", "squashfs", "-o", "loop,ro",
		filepath.Join(m.efi, "root-"+slot), over).CombinedOutput(); err != nil {
		t.Fatalf("mount slot %s: %v: %s", slot, err, out)
	}

	t.Cleanup(func() { _ = exec.Command("umount", "-l", over).Run() })
	m.mount(t, over+":"+tree(t))
	m.boot(t, slot, try)
	return true
}

// form has three machines form a cluster by answers, and three minions that know its
// virtual address.
func (c *slots) form(t *testing.T) {
	t.Helper()
	began := time.Now()
	for i := range 3 {
		a := fmt.Sprintf("node: node%d\naddress: %s%d\nsecret: a-secret-for-three-machines-012345\nstorage: {kind: volume}\n",
			21+i, c.base, 21+i)
		if i == 0 {
			a += "mode: form\ncluster_id: blue\nvirtual_address: " + c.virtual + "\n"
		} else {
			a += "mode: join\npeers: [" + c.base + "21]\n"
		}

		c.all = append(c.all, c.machine(t, 21+i, a))
	}

	for _, m := range c.all {
		for _, other := range c.all {
			m.wait(t, 600*time.Second, other.Name, "sh", "-c", "applianced status | grep -A9 HEALTHY")
		}
	}

	t.Logf("three nodes %s after the start", time.Since(began).Round(time.Second))
	for i := range 3 {
		id := fmt.Sprintf("web%d", i+1)
		c.logs = append(c.logs, c.minion(t, 50+i, id, c.virtual, "auth_timeout: 20", "log_level_logfile: info"))
		c.minions = append(c.minions, id)
	}

	c.all[0].wait(t, 180*time.Second, "accepted=3", "sh", "-c",
		"salt-key -y -A >&2; echo accepted=$(salt-key -l acc | tail -n +2 | grep -c .)")
	c.all[0].wait(t, 180*time.Second, "answers=3", "sh", "-c",
		`salt --out txt '*' test.ping | grep -c ": True" | sed s/^/answers=/`)
}

// until plays the boot loader, and has a job published each second, until all machines run
// a version and are well with it. Then it counts the returns.
func (c *slots) until(t *testing.T, version string) {
	t.Helper()
	s := &stream{slots: c, tick: time.NewTicker(time.Second)}
	defer s.tick.Stop()

	began := time.Now()
	var away []string // in which order they restarted
	good := regexp.MustCompile(regexp.QuoteMeta(version) + ` +running, known to be good`)
	lab.Eventually(t, 25*time.Minute, "all run version "+version, func() error {
		for _, m := range c.all {
			if m.reboots(t) {
				away = append(away, m.Name)
			}
		}

		s.publish()
		for _, m := range c.all {
			out, err := m.try("sh", "-c", "applianced upgrade status; applianced status | head -1")
			if err != nil || !good.MatchString(out) || !strings.Contains(out, "HEALTHY") {
				return fmt.Errorf("%s: %v %s", m.Name, err, out)
			}
		}

		return nil
	})

	t.Logf("three nodes are upgraded in %s", time.Since(began).Round(time.Second))
	if len(away) != 3 || away[2] != "node21" || away[0] == away[1] {
		t.Errorf("restarted: %v, want each once, the one that drives last", away)
	}

	s.settle(t)
}

// stream publishes jobs to all minions.
type stream struct {
	*slots
	tick   *time.Ticker
	next   int      // machine that is asked first
	jobs   []string // ids
	failed int      // tries to publish that came to nothing
}

var jobID = regexp.MustCompile(`job ID: (\d{20})`)

// publish has one of the machines publish a job, as an administrator would who tries the
// next one.
func (s *stream) publish() {
	<-s.tick.C
	for range s.all {
		m := s.all[s.next%len(s.all)]
		s.next++
		note := fmt.Sprintf("echo %d >>%s/{{ grains.id }}", len(s.jobs), s.ran)
		out, err := m.try("timeout", "8", "salt", "--async", "-L", strings.Join(s.minions, ","), "cmd.run",
			note, "template=jinja")
		if j := jobID.FindStringSubmatch(out); err == nil && j != nil {
			s.jobs = append(s.jobs, j[1])
			return
		}
		s.failed++
	}
}

// settle waits until the job cache has all returns of all jobs, and says what is missing,
// and whether the minion has run it.
func (s *stream) settle(t *testing.T) {
	t.Helper()
	ran := map[string]string{}
	missing := map[string]bool{}
	lack := func(i int, jid string) (out []string, err error) {
		text, err := s.all[0].try("salt-run", "--out", "json", "jobs.list_job", jid)
		var job struct{ Result map[string]json.RawMessage }
		if err == nil {
			err = json.Unmarshal([]byte(text), &job)
		}

		for n, id := range s.minions {
			if job.Result[id] == nil {
				said, _ := exec.Command("grep", jid, s.logs[n]).CombinedOutput() // returns that it gave up, too
				out = append(out,
					fmt.Sprintf("job %d of %s: no return; it was run: %v; its log: %s", i, id,
						slices.Contains(strings.Fields(ran[id]), fmt.Sprint(i)), said))
			}
		}

		for _, m := range s.all { // who has what, and when the others were away
			if len(out) > 0 {
				has, _ := m.try("sh", "-c",
					"salt-run --out txt jobs.list_job "+jid+
						"; journalctl -b --no-pager -o short-iso | head -1; grep -rl "+jid+" /var/lib/saltern/cache /srv/cluster/cluster 2>/dev/null")
				out = append(out, m.Name+": "+has)
			}
		}

		return out, err
	}

	// A copy that a master holds for another one is handed over after two minutes.
	began := time.Now()
	lab.Eventually(t, 5*time.Minute, "all returns are there", func() error {
		for _, id := range s.minions {
			b, err := os.ReadFile(filepath.Join(s.ran, id))
			if err != nil {
				return err
			}
			ran[id] = string(b)
		}

		var all []error
		for i, jid := range s.jobs {
			if there, looked := missing[jid]; looked && !there {
				continue
			}
			out, err := lack(i, jid)
			if missing[jid] = err != nil || len(out) > 0; missing[jid] {
				all = append(all, fmt.Errorf("job id %s: %v %v", jid, out, err))
			}
		}

		return errors.Join(all...)
	})

	var runs, twice int
	for _, id := range s.minions {
		list := strings.Fields(ran[id])
		runs += len(list)
		slices.Sort(list)
		twice += len(list) - len(slices.Compact(list))
	}

	t.Logf("%d jobs, %d returns, none is missing %s after the upgrade; minions ran %d, %d of them twice; %d tries to publish were refused and made elsewhere",
		len(s.jobs), len(s.minions)*len(s.jobs), time.Since(began).Round(time.Second), runs, twice,
		s.failed)
	if len(s.jobs) < 100 {
		t.Errorf("only %d jobs", len(s.jobs))
	}
}
