//go:build e2e && appliance

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestApplianceVolumeNewest is finding B4 with real minions on real glusterds: 200 changes in a
// row (SALTERN_ROUNDS), each through the mount of one of three nodes and applied from one of
// them without a pause. A job has the newest text, or says of which time its files are.
func TestApplianceVolumeNewest(t *testing.T) {
	h, _ := startVolume(t)
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv("SALTERN_ROUNDS"), "200"))
	c := changes{h: h}
	c.write(t, 1, "pillar/mark.sls", "mark: none\n", inPlace)
	c.write(t, 1, "pillar/top.sls", "base: {'*': [mark]}\n", inPlace)
	c.write(t, 1, "salt/pillar.sls", state("{{ pillar.mark }}"), inPlace) // pillar.items of 3008 masks values

	var took []time.Duration
	said := 0
	for round := range rounds {
		writer, reader, minion := 1+round%3, 1+round/3%3, volumeMinions[round/9%2]
		text := fmt.Sprintf("text-%06d", round)
		how := []func(at, text string) error{inPlace, byRename}[round/18%2]
		job := []string{"state.apply", "mark"}
		switch round / 36 % 3 {
		case 0:
			c.write(t, writer, "salt/mark.sls", state(text), how)
		case 1:
			name := fmt.Sprintf("new%d", round)
			c.write(t, writer, "salt/"+name+"/init.sls", state(text), how)
			job = []string{"state.apply", name}
		case 2:
			c.write(t, writer, "pillar/mark.sls", "mark: "+text+"\n", how)
			job = []string{"state.apply", "pillar"}
		}

		begun := time.Now()
		r := h.salt(t, reader, "salt", append([]string{"-t", "60", minion}, job...)...)
		took = append(took, time.Since(begun))
		switch {
		case strings.Contains(r.Err, "not the newest files"):
			said++
			t.Logf("round %d: %s", round, strings.TrimSpace(r.Err))
		case !strings.Contains(r.Out, text):
			t.Errorf("round %d: node%d wrote %s, and %s of node%d for %s gave\n%s%s", round, writer, text,
				job, reader, minion, r.Out, r.Err)
		}
	}

	slices.Sort(took)
	t.Logf("%d jobs: median %v, longest %v; %d said that their files are old", rounds,
		took[rounds/2].Round(time.Millisecond), took[rounds-1].Round(time.Millisecond), said)
	if said > rounds/10 {
		t.Errorf("%d of %d jobs had no newest files", said, rounds)
	}
}

// state is a state that says a text and changes nothing.
func state(text string) string { return "say:\n  test.show_notification:\n    - text: " + text + "\n" }

// changes writes below srv of the volume as people on a node do.
type changes struct{ h *machines }

// write changes a file through the mount of node i.
func (c changes) write(t *testing.T, i int, file, text string, how func(at, text string) error) {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(c.h.disks, fmt.Sprint(i), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join("/proc", strings.TrimSpace(string(pid)), "root/srv/cluster/srv", file)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := how(at, text); err != nil {
		t.Fatal(err)
	}
}

func inPlace(at, text string) error { return os.WriteFile(at, []byte(text), 0o644) }

func byRename(at, text string) error {
	if err := os.WriteFile(at+".tmp", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(at+".tmp", at)
}
