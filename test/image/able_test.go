//go:build nspawn

package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// able skips a test, loudly, where containers cannot be booted: in many
// containers for one. That the tree itself is at fault is no reason to skip.
func able(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: the image cannot be booted without root")
	}

	dir := t.TempDir()
	for _, d := range []string{"root", "up", "wk"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	try := func(what, script string) {
		if out, err := exec.Command("unshare", "--mount", "sh", "-ec", script, "sh", tree(t), dir).CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: the image cannot be booted here: %s: %v: %s", what, err, out)
		}
	}

	try("control groups",
		`for h in unified systemd .; do g=/sys/fs/cgroup/$h; [ -e $g/cgroup.procs ] || continue; mkdir $g/able$$; rmdir $g/able$$; exit 0; done; exit 1`)
	try("network namespaces", `ip netns add able$$; ip netns del able$$`)
	try("overlays",
		`mount -t tmpfs t $2; mkdir $2/root $2/up $2/wk; mount -t overlay -o lowerdir=$1,upperdir=$2/up,workdir=$2/wk overlay $2/root`)
	try("devices", `test -c /dev/fuse`)

	// A root directory that has nothing but one static program.
	try("systemd-nspawn", `mkdir -p $2/root/usr $2/root/etc; touch $2/root/etc/os-release; cp $1/usr/sbin/ldconfig $2/root/usr/static
systemd-nspawn -q -D $2/root -M able$$ --register=no --keep-unit --private-network -- /usr/static --version`)
}
