package tree

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAgeOfPackages: who builds from packages of long ago is told.
func TestAgeOfPackages(t *testing.T) {
	for days, want := range map[int]string{0: "level=INFO", 6: "days=6", 40: "level=WARN"} {
		dir := t.TempDir()
		tar, at := filepath.Join(dir, "base.tar"), time.Now().AddDate(0, 0, -days)
		if err := os.WriteFile(tar, nil, 0o600); err != nil {
			t.Fatal(err)
		}

		if err := os.Chtimes(tar, at, at); err != nil {
			t.Fatal(err)
		}

		var out bytes.Buffer
		b := builder{Options: Options{Log: slog.New(slog.NewTextHandler(&out, nil))}}
		b.tellAge(dir)
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), dir) {
			t.Errorf("%d days: %s", days, out.String())
		}
	}
}
