package adopt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/test/check"
)

// savedText is a file of saved objects as masters write it.
const savedText = "# Saved targets, jobs and schedules, written by the masters: version 7, sha256 " +
	"053154101874bfb947597891f93c438676bdaae651924bfcc8fded9829f676a5\ntargets: {}\n"

// TestSavedObjects: what one Saltern has saved comes to another one by export and import, once; a node that
// has saved objects keeps them, also with Force.
func TestSavedObjects(t *testing.T) {
	first := freshNode(t)
	apply(t, look(t, oldMaster(t), Request{Settings: first}), "one")
	write(t, first.Storage.Path, map[string]string{"pki/saved.saltern": savedText})
	tree := filepath.Join(t.TempDir(), "tree")
	_, err := Export(t.Context(), first, tree)
	check.Must(t, err)

	second := freshNode(t)
	apply(t, look(t, tree, Request{Settings: second}), "one")
	if got := read(t, second, "pki/saved.saltern"); got != savedText {
		t.Fatalf("after the import: %q", got)
	}
	if c := counts(look(t, tree, Request{Settings: second}))[Saved]; c[1] != 1 || c[0]+c[2]+c[3] > 0 {
		t.Errorf("the import again: %v", c)
	}

	for name, change := range map[string]func(dir string){
		"other objects": func(dir string) { write(t, dir, map[string]string{"pki/saved.saltern": savedText + "# more\n"}) },
		"older versions alone": func(dir string) {
			check.Must(t, os.Remove(filepath.Join(dir, "pki/saved.saltern")))
			write(t, dir, map[string]string{"pki/.saved.saltern.after-3-abc": savedText})
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := freshNode(t)
			apply(t, look(t, tree, Request{Settings: node}), "one")
			change(node.Storage.Path)
			before := names(t, filepath.Join(node.Storage.Path, "pki"))
			p := look(t, tree, Request{Settings: node, Force: true})
			if c := counts(p)[Saved]; c[3] != 1 || c[0]+c[1]+c[2] > 0 {
				t.Errorf("%v", c)
			}
			apply(t, p, "two")
			if after := names(t, filepath.Join(node.Storage.Path, "pki")); !slices.Equal(after, before) {
				t.Errorf("%q, and before %q", after, before)
			}
		})
	}
}

// TestHostileSavedObjects: what is no such file is left out and named.
func TestHostileSavedObjects(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":     "",
		"another":     "targets: {}",
		"too large":   savedText + strings.Repeat("#", maxSaved),
		"a script":    "#!/bin/sh\n",
		"other words": "# Saved",
		"half of it":  savedText[:len(savedText)-4],
		"one byte":    strings.Replace(savedText, "targets: {", "targets: [", 1),
		"no hash":     savedHead + "\ntargets: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			old, node := oldMaster(t), freshNode(t)
			write(t, old, map[string]string{"etc/salt/pki/master/saved.saltern": text})
			p := look(t, old, Request{Settings: node})
			apply(t, p, "one")
			if _, err := os.Stat(filepath.Join(node.Storage.Path, "pki/saved.saltern")); err == nil || counts(p)[Saved][3] != 1 {
				t.Errorf("it was imported: %v", counts(p)[Saved])
			}
		})
	}
}
