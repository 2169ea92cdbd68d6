package userdata

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// loopDisk makes a block device of an image; it is read-only.
func loopDisk(t *testing.T, image string) string {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", "--read-only", image).CombinedOutput()
	if err != nil {
		t.Skipf("NOT TESTED: no disk can be made of a file here: losetup: %v %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v %s", err, out)
		}
	})
	return device
}

func runTool(t *testing.T, argv ...string) {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v %s", argv, err, out)
	}
}

// TestSeedService runs what saltern-seed.service runs on real disks (F12): labels
// in any case, a blank in one as udev writes it, and no text is cut. The program
// then finds the answers without mounting anything.
func TestSeedService(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: root is needed to mount a disk")
	}

	script, err := filepath.Abs("../../image/profile/overlay/usr/libexec/saltern/seed")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	long := config + strings.Repeat("# more than 64 KiB\n", 4000)
	seed := filepath.Dir(file(t, "user-data", long))
	if err := os.WriteFile(filepath.Join(seed, "network-config"), []byte("version: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	ovf := filepath.Dir(file(t, "ovf-env.xml", string(ovfEnvironment("node", "ovf"))))

	// ext4: a kernel for tests may lack the others, which TestSeedDisk looks at.
	cidata, environment, junk := filepath.Join(dir, "cidata"), filepath.Join(dir, "environment"), file(t, "junk", strings.Repeat("x", 1<<20))
	runTool(t, "mkfs.ext4", "-q", "-d", seed, cidata, "2m")
	runTool(t, "mkfs.ext4", "-q", "-d", ovf, environment, "2m")

	dev, run := filepath.Join(dir, "dev"), filepath.Join(dir, "run")
	for _, d := range []string{filepath.Join(dev, "disk", "by-label"), filepath.Join(run, "saltern-seed")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for label, image := range map[string]string{"CiData": cidata, `OVF\x20ENV`: environment, "ovf-transport": junk} {
		device := loopDisk(t, image)
		runTool(t, "cp", "-a", device, dev)
		if err := os.Symlink(filepath.Join("..", "..", filepath.Base(device)),
			filepath.Join(dev, "disk", "by-label", label)); err != nil {
			t.Fatal(err)
		}
	}

	runTool(t, "cp", "-a", "/dev/null", dev)

	out, err := exec.Command("unshare", "--mount", "sh", "-c",
		`mount --bind "$1" /run && mount --bind "$2" /dev && exec sh "$3"`, "sh", run, dev, script).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ovf-transport cannot be mounted") {
		t.Errorf("%v %s", err, out)
	}

	found := filepath.Join(run, "saltern-seed")
	if text, err := os.ReadFile(filepath.Join(found, "user-data")); err != nil || string(text) != long {
		t.Fatalf("%d bytes of %d, %v %s", len(text), len(long), err, out)
	}

	given, err := Places{Seeds: []string{found}, OVF: found, Log: quiet()}.Look(t.Context())
	if err != nil || given.Answers == nil || given.Answers.Node != "given" {
		t.Errorf("%+v %v", given, err)
	}

	if err := os.Remove(filepath.Join(found, "user-data")); err != nil {
		t.Fatal(err)
	}

	given, err = Places{Seeds: []string{found}, OVF: found, Log: quiet()}.Look(t.Context())
	if err != nil || given.Answers == nil || given.Answers.Node != "ovf" || len(given.Unused) != 2 {
		t.Errorf("%+v %v", given, err)
	}
}

// TestDiskThatMayNotBeMounted: a cidata disk with a network's configuration alone
// must not stop the set-up of a service without CAP_SYS_ADMIN (F12).
func TestDiskThatMayNotBeMounted(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil || os.Getuid() != 0 {
		t.Skip("NOT TESTED: needs root and setpriv")
	}

	const inside = "SALTERN_TEST_DEVICES"
	if devices := os.Getenv(inside); devices != "" {
		given, err := Places{Devices: devices, Log: quiet()}.Look(t.Context())
		if err != nil || given.Answers != nil || len(given.Unused) != 2 ||
			!strings.Contains(given.Unused[0], "may not mount") {
			t.Errorf("%+v %v", given, err)
		}
		return
	}

	devices := t.TempDir()
	for _, label := range []string{"cidata", "OVF-TRANSPORT", "other"} {
		if err := os.Symlink("/dev/null", filepath.Join(devices, label)); err != nil {
			t.Fatal(err)
		}
	}

	cmd := exec.Command("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", os.Args[0],
		"-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+devices)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}
