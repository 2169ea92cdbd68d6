package setup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSystemDisk: the disk that the system runs from is no place for data.
func TestSystemDisk(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"block/vda/size": "20971520\n", "block/vda/dev": "254:0\n", "block/vda/vda3/dev": "254:3\n", "block/vda/vda5/dev": "254:5\n",
		"block/vdb/size": "20971520\n", "block/vdb/dev": "254:16\n",
		"mountinfo": "1 1 0:2 / / rw - rootfs rootfs rw\n25 1 254:3 / / ro,relatime - squashfs /dev/vda3 ro\n26 25 254:5 / /data rw - ext4 /dev/vda5 rw\n",
	} {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	root := rootDevice(filepath.Join(dir, "mountinfo"))
	if root != "254:3" {
		t.Fatalf("root is on %q", root)
	}

	for name, want := range map[string]bool{"vda": true, "vdb": false} {
		if got := holdsDevice(filepath.Join(dir, "block", name), name, root); got != want {
			t.Errorf("%s holds the system: %v", name, got)
		}
	}

	if holdsDevice(filepath.Join(dir, "block/vdb"), "vdb", "") {
		t.Error("a disk holds a system that is on none")
	}
}
