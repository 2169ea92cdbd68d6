package main

import (
	"bytes"
	"strings"
	"testing"

	"saltern/supervisor/status"
)

// Which keys a verb is for: by state, fingerprint and name, all of which must fit.
func TestChosenKeys(t *testing.T) {
	list := func() status.MinionList {
		return status.MinionList{Minions: []status.Minion{
			{
				ID:     "web1",
				Key:    "accepted",
				Finger: "aa:aa",
			}, {ID: "new", Key: "pending", Finger: "bb:bb"}, {ID: "old", Key: "rejected", Finger: "cc:cc"},
			{ID: "web1", Key: "denied", Finger: "dd:dd"}, {ID: "web2", Key: "denied", Finger: "aa:aa"}}}
	}

	for _, c := range []struct {
		k    keyChoice
		want string // or the error
	}{
		{keyChoice{verb: "delete", state: "denied"}, "web1 denied, web2 denied"},
		{keyChoice{verb: "delete", state: "denied", names: []string{"web1"}}, "web1 denied"},
		{keyChoice{verb: "delete", finger: "AA:AA"}, "web1 accepted, web2 denied"},
		{keyChoice{verb: "delete", finger: "aa:aa", state: "accepted"}, "web1 accepted"},
		{keyChoice{verb: "accept", finger: "bb:bb"}, "new pending"},
		{keyChoice{verb: "accept", finger: "aa:aa"}, "there is no such key"}, // neither accepted nor denied ones
		{keyChoice{verb: "accept", finger: "cc:cc", names: []string{"new"}}, `no such key of "new"`},
		{keyChoice{verb: "delete", names: []string{"web1", "nobody"}, state: "denied"}, `no such key of "nobody"`},
		{keyChoice{verb: "reject", names: []string{"web1", "new"}}, "web1 accepted, new pending"},
	} {
		got, err := c.k.chosen(list())
		var texts []string
		for _, m := range got.Minions {
			texts = append(texts, m.ID+" "+m.Key)
		}

		text := strings.Join(texts, ", ")
		if err != nil {
			text = err.Error()
		}

		if err == nil && text != c.want || err != nil && !strings.Contains(text, c.want) {
			t.Errorf("%+v: %s, want %s", c.k, text, c.want)
		}
	}
}

// Nothing is done by a command line that names no key, or asks for nothing there is.
func TestMisusedKeyVerbs(t *testing.T) {
	for line, want := range map[string]string{
		"accept": "it takes names", "delete": "it takes names", "delete --state gone": "is none of", "list --state gone": "is none of",
		"delete --state denied --never-seen": "goes with --not-seen", "delete --state denied --not-seen 30": "days or hours", "delete --state denied --not-seen -1d": "days or hours",
		"delete --not-seen 30d": "it takes names", "accept web1 --not-seen 30d": "unknown flag", "accept --state pending": "unknown flag", "delete --state denied --yes=x": "invalid argument", "list x": "unknown command",
	} {
		cmd := rootCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"--socket", t.TempDir() + "/none", "keys"}, strings.Fields(line)...))
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("keys %s: %v", line, err)
		}
	}
}
