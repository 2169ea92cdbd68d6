package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// savedToken returns the token that an earlier call with -T saved, or "". A caller who can read the
// root key needs no token.
func (t *tool) savedToken() (string, error) {
	path := t.tokenFile()
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > 4096 || time.Since(st.ModTime()) > t.cfg.TokenExpire {
		return "", nil
	}

	if f, err := os.Open(filepath.Join(t.cfg.CacheDir, ".root_key")); err == nil {
		f.Close()
		return "", nil
	}

	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil
	}

	return strings.TrimSpace(string(b)), nil
}

func (t *tool) tokenFile() string {
	if s := t.cfg.TokenFile; s != "" {
		return s
	}
	home := t.getenv("HOME")
	if d := filepath.Join(home, ".config", "salt"); isDir(d) {
		return filepath.Join(d, "salt_token")
	}
	return filepath.Join(home, "salt_token")
}

func isDir(p string) bool { st, err := os.Stat(p); return err == nil && st.IsDir() }
