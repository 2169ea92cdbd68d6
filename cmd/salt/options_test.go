package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestConfigDir(t *testing.T) {
	for name, tt := range map[string]struct {
		files []string
		node  bool // the node's directory is taken
	}{
		"nothing":                   {nil, false},
		"Salt's own":                {[]string{"salt/master", "node/master"}, false},
		"Salt's own, in parts":      {[]string{"salt/master.d/a.conf", "node/master"}, false},
		"a node by packages":        {[]string{"salt/master.d/saltern.conf", "node/master"}, true},
		"a node and no option file": {[]string{"salt/master.d/README", "node/master"}, true},
		"packages and Salt's parts": {[]string{"salt/master.d/saltern.conf", "salt/master.d/a.conf", "node/master"},
			false},
		"the master alone":            {[]string{"salt/master.d/saltern.conf"}, false},
		"a minion and a node":         {[]string{"salt/minion", "node/master"}, true},
		"a node":                      {[]string{"node/master"}, true},
		"a node that was reset":       {[]string{"node/master.d/a.conf"}, false},
		"a minion and no node at all": {[]string{"salt/minion"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tt.files {
				path := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}

			own, node := filepath.Join(dir, "salt"), filepath.Join(dir, "node")
			if got := configDir(own, node); (got == node) != tt.node {
				t.Errorf("got %s", got)
			}
		})
	}
}
