//go:build e2e && appliance

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	c.prepare(t)

	for range rounds {
		c.apply(t)
	}
	if said := c.figures(t); said > rounds/10 {
		t.Errorf("%d of %d jobs had no newest files", said, rounds)
	}
}

// prepare writes what changes refer to.
func (c *changes) prepare(t *testing.T) {
	t.Helper()
	c.write(t, 1, "pillar/mark.sls", "mark: none\n", inPlace)
	c.write(t, 1, "pillar/top.sls", "base: {'*': [mark]}\n", inPlace)
	c.write(t, 1, "salt/pillar.sls", state("{{ pillar.mark }}"), inPlace) // pillar.items of 3008 masks values
}

// apply changes a file, another one and by another node each time, and has a minion apply it.
func (c *changes) apply(t *testing.T) {
	t.Helper()
	round := c.round
	c.round++
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
	r := c.h.salt(t, reader, "salt", append([]string{"-t", "60", minion}, job...)...)
	c.took = append(c.took, time.Since(begun))
	newest := strings.Contains(r.Out, text)
	told := oldFiles.FindStringSubmatch(r.Err)
	if told != nil {
		c.said++
		t.Logf("round %d: %s", round, strings.TrimSpace(r.Err))
	}
	switch {
	case newest:
	case told == nil:
		t.Errorf("round %d: node%d wrote %s, and %s of node%d for %s gave\n%s%s", round, writer, text, job, reader, minion, r.Out, r.Err)
	default:
		if asOf, err := time.Parse(time.RFC3339, told[1]); err != nil || asOf.After(begun) {
			t.Errorf("round %d: what node%d wrote at %v is not in files that are of %s (%v)", round, writer, begun, told[1], err)
		}
	}
}

// oldFiles is the word of Salt's tools on old files, with the time of which they are.
var oldFiles = regexp.MustCompile(`not the newest files: node .* files and pillars of (\S+), without what was written since`)

// figures prints how long the jobs took, forgets them, and returns how many had old files.
func (c *changes) figures(t *testing.T) (said int) {
	t.Helper()
	slices.Sort(c.took)
	t.Logf("%d jobs: median %v, longest %v; %d said that their files are old", len(c.took),
		c.took[len(c.took)/2].Round(time.Millisecond), c.took[len(c.took)-1].Round(time.Millisecond), c.said)
	said = c.said
	c.took = nil
	c.said = 0
	return said
}

// state is a state that says a text and changes nothing.
func state(text string) string { return "say:\n  test.show_notification:\n    - text: " + text + "\n" }

// changes writes below srv of the volume as people on a node do, and applies what was written.
type changes struct {
	h     *machines
	round int             // the next one
	took  []time.Duration // the jobs since the last figures
	said  int             // how many of them said that their files are old
}

// write changes a file through the mount of node i.
func (c *changes) write(t *testing.T, i int, file, text string, how func(at, text string) error) {
	t.Helper()
	at := filepath.Join(c.h.root(t, i), "srv/cluster/srv", file)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := how(at, text); err != nil {
		t.Fatal(err)
	}
}

// root is the root directory of machine i, seen from here.
func (h *machines) root(t *testing.T, i int) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(h.disks, fmt.Sprint(i), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/proc", strings.TrimSpace(string(pid)), "root")
}

func inPlace(at, text string) error { return os.WriteFile(at, []byte(text), 0o644) }

func byRename(at, text string) error {
	if err := os.WriteFile(at+".tmp", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(at+".tmp", at)
}
