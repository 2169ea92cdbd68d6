package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

func TestStorageTLS(t *testing.T) {
	s := &settings.Settings{DataDir: "/var/lib/saltern"}
	for _, c := range []struct {
		name  string
		table nodes.Table
		on    bool
		words []string
		code  exitError
	}{
		{"no cluster", nodes.Table{}, false, nil, 0},
		{"off", nodes.Table{Version: 1}, false, []string{"TLS is off"}, exitUndone},
		{"off, and wanted", nodes.Table{Version: 1}, true,
			[]string{"TLS is off", "applianced backup", "applianced restore", "storage: {tls: true}"},
			exitUndone},
	} {
		var out bytes.Buffer
		err := tellTLS(&out, s, &c.table, c.on)
		var code exitError
		if err == nil || errors.As(err, &code) != (c.code != 0) || code != c.code {
			t.Errorf("%s: %v", c.name, err)
		}

		for _, w := range c.words {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: %q is not in %q", c.name, w, out.String())
			}
		}
	}
}
