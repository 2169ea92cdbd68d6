package main

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
)

// What nodes say of their git remotes: one block for each remote, and nothing of it
// moves the cursor.
func TestAttack26ListOfGitRemotes(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	before, after := now.Add(-12*time.Second), now.Add(48*time.Second)
	files := func(commit string) status.GitRemote {
		return status.GitRemote{
			URL:     "https://git.example.com/states.git",
			Files:   true,
			State:   commit,
			Fetched: &before,
			Next:    &after,
			Refs: []status.GitRef{
				{Name: "main", Commit: commit + "0123456789"},
				{Name: "b", Commit: "1"},
				{Name: "c", Commit: "2"},
				{Name: "d", Commit: "3"},
			},
			More: 5,
		}
	}

	hostile := status.GitRemote{
		URL:      "git@h:p\x1b[2J",
		Pillars:  true,
		Fetching: true,
		Fault: &status.GitFault{
			Code:  status.GitAway,
			Kind:  "unreachable",
			Text:  "gone\x1b[2J",
			Since: now.Add(-5 * time.Minute),
		},
	}

	list := status.GitList{Nodes: map[string][]status.GitRemote{
		"sca-1": {files("aaa"), hostile},
		"sca-2": {files("aaa")},
	}}

	var out strings.Builder
	if err := writeGit(&out, gitBlocks(list), now); err != nil {
		t.Fatal(err)
	}

	want := `git@h:p (git_pillar)
  NODE   SERVES  FETCHED  NEXT  STATE
  sca-1  -       -        -     SCA-214 unreachable for 5m: gone, fetching

https://git.example.com/states.git (gitfs)
  NODE   SERVES                                 FETCHED  NEXT    STATE
  sca-1  main aaa012345, b 1, c 2, and 6 more  12s ago  in 48s  ok
  sca-2  main aaa012345, b 1, c 2, and 6 more  12s ago  in 48s  ok
`
	if squeezed(out.String()) != squeezed(want) {
		t.Errorf("%s", out.String())
	}

	if strings.Contains(out.String(), "\x1b") {
		t.Error("an escape sequence is printed")
	}

	if b := gitBlocks(list); !b[0].unwell() || b[1].unwell() {
		t.Errorf("%+v", b)
	}

	list.Nodes["sca-2"] = []status.GitRemote{files("bbb")}
	if b := gitBlocks(list); !b[1].differ() || !b[1].unwell() {
		t.Error("nodes that differ are well")
	}

	out.Reset()
	if err := writeGit(&out, nil, now); err != nil || !strings.Contains(out.String(), "gitfs_remotes") {
		t.Errorf("without remotes: %q %v", out.String(), err)
	}
}

// squeezed has one space for each run of them.
func squeezed(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}
