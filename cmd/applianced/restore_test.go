package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestoreWithoutItsVolume: restore and import write nothing below the mount point of a volume
// that is not mounted.
func TestRestoreWithoutItsVolume(t *testing.T) {
	dir := t.TempDir()
	storage := filepath.Join(dir, "volume")
	if err := os.MkdirAll(filepath.Join(storage, "pki"), 0o755); err != nil { // left by an earlier mistake
		t.Fatal(err)
	}
	config := filepath.Join(dir, "appliance.yaml")
	text := "cluster: prod\nnode: n1\ndata_dir: " + dir + "/data\nruntime_dir: " + dir + "/run\n" +
		"storage: {kind: volume, path: " + storage + "}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "archive")
	if err := os.WriteFile(archive, []byte("an archive"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, words := range [][]string{
		{"restore", "--passphrase-file", archive, archive},
		{"import", archive},
	} {
		root := rootCommand()
		root.SetArgs(append([]string{"--config", config}, words...))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "is not mounted at "+storage) {
			t.Errorf("%s: %v", words[0], err)
		}
		if found, err := os.ReadDir(storage); err != nil || len(found) != 1 {
			t.Errorf("%s has written %v, %v", words[0], found, err)
		}
	}
}
