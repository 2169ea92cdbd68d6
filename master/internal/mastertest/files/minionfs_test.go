package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/check"
)

// The options minionfs_* reach the file server: a minion that is not on the
// whitelist must not show its files to others.
func TestMinionFSOptions(t *testing.T) {
	r := mastertest.Start(t, `
file_recv: True
fileserver_backend: [minionfs]
minionfs_env: pushed
minionfs_mountpoint: salt://from
minionfs_whitelist: [good*]
minionfs_blacklist: [goodbye]
`)

	for _, id := range []string{"good1", "goodbye", "other"} {
		dir := filepath.Join(r.Parts.Options.CacheDir, "minions", id, "files")
		check.Must(t, os.MkdirAll(dir, 0o755))
		check.Must(t, os.WriteFile(filepath.Join(dir, "pushed.txt"), []byte("x"), 0o644))
	}

	for env, want := range map[string]string{"pushed": "[from/good1/pushed.txt]", "base": "[]"} {
		got, err := r.Parts.Files.Call(t.Context(), "_file_list", "good1", value.NewMap("saltenv", env))
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(got); s != want && !(want == "[]" && strings.Trim(s, "[]") == "") {
			t.Errorf("%s: %s, want %s", env, s, want)
		}
	}
}
