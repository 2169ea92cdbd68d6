package datadisk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"saltern/supervisor/settings"
)

// TestDataDiskIsKnownByItsIdentity: a disk of another node with the same label is not
// taken for this node's (F13).
func TestDataDiskIsKnownByItsIdentity(t *testing.T) {
	dir := t.TempDir()
	oldLabel, oldUUID := byLabel, byUUID
	t.Cleanup(func() { byLabel, byUUID = oldLabel, oldUUID })
	byLabel, byUUID = filepath.Join(dir, "label"), dir
	const own = "0bd5a9a0-7a3c-4bb4-9d0e-0a0b0c0d0e0f"

	for _, name := range []string{"vdb", "vdc"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for link, to := range map[string]string{byLabel: "vdc", filepath.Join(dir, own): "vdb"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		name, mark, want string
		err              error
	}{
		{name: "none", err: fs.ErrNotExist},
		{name: "identity", mark: "/dev/vdb\n" + own + "\n", want: "vdb"},
		{name: "written before identities were", mark: "/dev/vdb\n", want: "vdc"},
		{name: "away", mark: "/dev/vdb\nffffffff-7a3c-4bb4-9d0e-0a0b0c0d0e0f\n", err: fs.ErrNotExist},
		{name: "hostile", mark: "/dev/vdb\n../../etc/passwd\n", want: "vdc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := settings.Default("n1")
			cfg.DataDir = t.TempDir()
			if c.mark != "" {
				if err := os.WriteFile(filepath.Join(cfg.DataDir, diskMark), []byte(c.mark), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			if got, err := device(&cfg); !errors.Is(err, c.err) || c.err == nil && filepath.Base(got) != c.want {
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
		})
	}
}
