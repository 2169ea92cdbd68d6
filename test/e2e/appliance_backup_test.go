//go:build e2e && appliance

package e2e

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestScheduledBackups has one of three nodes make the cluster's backup, shows it on
// all of them, kills the node that makes the next one in the middle, and takes the
// directory away.
func TestScheduledBackups(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "bkp", "10.76"))
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}

	to, key := lab.Dir(t), filepath.Join(lab.Dir(t), "key.txt")
	if err := os.WriteFile(key, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, n := range nodes {
		n.Change(t, "settings.backup.every", "24h")
		n.Change(t, "settings.backup.to", to)
		n.Change(t, "settings.backup.keep", 2)
		n.Change(t, "settings.backup.recipients", []string{id.Recipient().String()})
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	last := func(n *lab.Appliance) (l status.BackupList, r lab.Result) {
		r = n.Applianced(t, "backup", "status", "--json")
		if err := json.Unmarshal([]byte(r.Out), &l); err != nil {
			t.Logf("%+v", r)
		}
		return l, r
	}

	var first status.BackupList
	for i, n := range nodes {
		lab.Eventually(t, 150*time.Second, "the first backup is known to all", func() error {
			l, r := last(n)
			if l.Last == nil || r.Code != 0 || len(l.Files) != 1 || i > 0 && l.Last.Name != first.Last.Name {
				return fmt.Errorf("node %d: %+v", i, r)
			}
			first = l
			return nil
		})
	}

	if r := nodes[2].Applianced(t, "restore", "--check", "-i", key, filepath.Join(to, first.Last.Name)); r.Code != 0 || !strings.Contains(r.Out, "whole: backup of cluster") || !strings.Contains(r.Out, first.Last.Signer) {
		t.Errorf("check: %+v", r)
	}

	lab.Eventually(t, 20*time.Second, "the status has it", func() error {
		if d, err := nodes[1].Status(t); err != nil || d.Backup == nil || d.Backup.Last == nil ||
			d.Backup.Next.Before(time.Now().Add(23*time.Hour)) {
			return fmt.Errorf("%+v %w", d.Backup, err)
		}
		return nil
	})

	killedAtBackup(t, nodes[1], to)
	if r := nodes[0].Applianced(t, "backup", "now"); r.Code != 0 {
		t.Errorf("another node goes on: %+v", r)
	}

	r := nodes[0].Applianced(t, "backup", "list", "--json")
	var files []status.BackupFile
	if err := json.Unmarshal([]byte(r.Out), &files); err != nil || len(files) != 2 ||
		slices.ContainsFunc(files, func(f status.BackupFile) bool { return f.Name == first.Last.Name || f.Missing }) {
		t.Errorf("kept: %+v", r)
	}

	for _, f := range files {
		if r := nodes[2].Applianced(t, "restore", "--check", "-i", key, filepath.Join(to, f.Name)); r.Code != 0 {
			t.Errorf("%s: %+v", f.Name, r)
		}
	}

	if left, err := filepath.Glob(filepath.Join(to, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q %v", left, err)
	}

	if err := errors.Join(os.Rename(to, to+".away"), os.Mkdir(to, 0o700)); err != nil { // unmounted
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(to + ".away") })
	if r := nodes[0].Applianced(t, "backup", "now"); r.Code != 1 ||
		!strings.Contains(r.Err, "is something mounted at "+to+" no more?") {
		t.Errorf("unmounted: %+v", r)
	}

	lab.Eventually(t, 150*time.Second, "the others show it as well", func() error {
		d, err := nodes[2].Status(t)
		if err == nil && !slices.ContainsFunc(d.Problems,
			func(p status.Problem) bool { return p.Code == status.BackupLate }) {
			err = fmt.Errorf("%+v", d.Problems)
		}
		return err
	})

	if r := nodes[2].Applianced(t, "backup", "status"); r.Code != 2 || !strings.Contains(r.Out, "Failed") ||
		!strings.Contains(r.Out, "on n1: ") {
		t.Errorf("status: %+v", r)
	}

	if err := errors.Join(os.Remove(to), os.Rename(to+".away", to)); err != nil {
		t.Fatal(err)
	}

	if r := nodes[2].Applianced(t, "backup", "now"); r.Code != 0 {
		t.Errorf("mounted again: %+v", r)
	}

	mendedAll(t, nodes[0], status.BackupLate)
}

// killedAtBackup kills a node while it writes a backup; when it is back, it makes it
// anew and leaves nothing behind.
func killedAtBackup(t *testing.T, n *lab.Appliance, to string) {
	t.Helper()
	noise := make([]byte, 64<<20)
	_, _ = rand.Read(noise) // never fails
	big := filepath.Join(n.Shared, "srv", "salt", "noise")
	if err := os.MkdirAll(filepath.Dir(big), 0o755); err != nil {
		t.Fatal(err)
	}

	for i := range 6 {
		if err := os.WriteFile(fmt.Sprint(big, i), noise, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	parts := func() []string {
		left, err := filepath.Glob(filepath.Join(to, ".*part*"))
		if err != nil {
			t.Fatal(err)
		}
		return left
	}

	asked := make(chan lab.Result, 1)
	go func() { asked <- n.Applianced(t, "backup", "now") }()
	lab.Eventually(t, 60*time.Second, "a backup is being written", func() error {
		if len(parts()) == 0 {
			return errors.New("no part")
		}
		return nil
	})

	n.Kill()
	if r := <-asked; r.Code == 0 {
		t.Errorf("a killed node: %+v", r)
	}

	n.Launch(t)
	n.WaitReady(t, 3)
	lab.Eventually(t, 60*time.Second, "the node makes it anew", func() error {
		if r := n.Applianced(t, "backup", "now"); r.Code != 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	if left := parts(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	for i := range 6 {
		if err := os.Remove(fmt.Sprint(big, i)); err != nil {
			t.Fatal(err)
		}
	}
}
