package salttools

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
	"saltern/test/controltest"
)

// What several masters know of a minion becomes one line: there if it
// subscribed anywhere, with the newest sign.
func TestMergeMinions(t *testing.T) {
	at := func(s int64) *time.Time { t := time.Unix(s, 0); return &t }
	got := mergeViews(map[string]status.MinionView{
		"n1": {Minions: []status.Minion{
			{
				ID:      "a",
				Key:     "accepted",
				Address: "10.0.0.7",
				Seen:    at(30),
			}, {ID: "b", Key: "accepted", Address: "10.0.0.8", Seen: at(10)},
			{ID: "c", Key: "accepted", Connected: true}, {ID: "d", Key: "accepted"},
			{
				ID:      "nat1",
				Key:     "accepted",
				Address: "10.0.9.9",
				Seen:    at(3),
			}, {ID: "nat2", Key: "accepted", Address: "10.0.9.9", Seen: at(2)},
			{ID: "nat3", Key: "accepted", Address: "10.0.9.9", Seen: at(1)},
			{ID: "new", Key: "pending"}, {ID: "a", Key: "denied", Address: "10.6.6.6", Seen: at(5)}},
			Subscriptions: map[string]int{"10.0.9.9": 1, "10.0.0.8": 1, "10.6.6.6": 3}},
		"n2": {Minions: []status.Minion{
			{
				ID:      "a",
				Key:     "accepted",
				Address: "10.0.0.1",
				Seen:    at(20),
			}, {ID: "b", Key: "accepted", Address: "10.0.0.9", Seen: at(20)},
			{ID: "new", Key: "pending", Address: "10.0.0.3", Seen: at(1), Finger: "aa:bb"}},
			Subscriptions: map[string]int{"10.0.9.9": 1, "10.0.0.7": 1}},
	})

	want := []status.Minion{
		// its requests are at n1
		{ID: "a", Key: "accepted", Connected: true, Node: "n2", Address: "10.0.0.7", Seen: at(30)},
		// has moved; the old subscription is nobody's
		{ID: "b", Key: "accepted", Address: "10.0.0.9", Seen: at(20)},
		{ID: "c", Key: "accepted", Connected: true, Node: "n1"},
		{ID: "d", Key: "accepted"},
		{ID: "nat1", Key: "accepted", Connected: true, Address: "10.0.9.9", Seen: at(3)},
		{ID: "nat2", Key: "accepted", Connected: true, Address: "10.0.9.9", Seen: at(2)},
		{ID: "nat3", Key: "accepted", Address: "10.0.9.9", Seen: at(1)},
		{ID: "new", Key: "pending", Address: "10.0.0.3", Seen: at(1), Finger: "aa:bb"},
		{ID: "a", Key: "denied", Address: "10.6.6.6", Seen: at(5)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestNamesOfKeys(t *testing.T) {
	for id, ok := range map[string]bool{
		"web1":      true,
		"a.b-c_d:1": true,
		"-a":        false,
		"*":         false,
		"a,b":       false,
		"":          false,
		"a b":       false,
		"a/b":       false,
		"[ab]":      false,
		"a\n":       false,
	} {
		if plainID.MatchString(id) != ok {
			t.Errorf("%q: %v", id, !ok)
		}
	}
}

// What is asked of salt-key for a change.
func TestKeyOptions(t *testing.T) {
	f := strings.TrimSuffix(strings.Repeat("0a:", 32), ":")
	for _, c := range []struct {
		q    api.KeyChange
		want string
	}{
		{api.KeyChange{Verb: "accept", IDs: []string{"a"}, Finger: f}, "-a --include-all --only-fingerprint " + f},
		{api.KeyChange{Verb: "delete", IDs: []string{"a"}, State: "denied"}, "-d --only-state den"},
		{api.KeyChange{Verb: "delete", IDs: []string{"a"}}, "-d"},
		{api.KeyChange{Verb: "delete"}, ""},
		{api.KeyChange{Verb: "delete", IDs: make([]string, api.MaxKeys+1)}, ""},
		{api.KeyChange{Verb: "print", IDs: []string{"a"}}, ""},
		{api.KeyChange{Verb: "delete", IDs: []string{"a"}, State: "all"}, ""},
		{api.KeyChange{Verb: "accept", IDs: []string{"a"}, State: "pending"}, ""},
		{api.KeyChange{Verb: "accept", IDs: []string{"a"}, Finger: "--help"}, ""},
	} {
		got, err := keyOptions(c.q)
		if strings.Join(got, " ") != c.want || (err == nil) != (c.want != "") ||
			err != nil && !errors.Is(err, api.ErrState) {
			t.Errorf("%+v: %q %v", c.q, got, err)
		}
	}
}

// The minions of the file that the master's test has written.
func TestViewOfRecordedMinions(t *testing.T) {
	b, err := os.ReadFile(controltest.Path(t, "minions.json"))
	if err != nil {
		t.Fatal(err)
	}

	var list control.Minions
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}

	v := viewOf(list)
	for i := range v.Minions {
		if len(v.Minions[i].Finger) != 95 {
			t.Errorf("fingerprint %q", v.Minions[i].Finger)
		}
		v.Minions[i].Finger = ""
	}

	at, began := time.Unix(1764000000, 250e6).UTC(), time.Unix(1763000000, 0).UTC()
	want := status.MinionView{
		Minions: []status.Minion{
			{ID: "web1", Key: "accepted", Address: "127.0.0.1", Seen: &at},
			{ID: "web2", Key: "pending"},
		},
		Subscriptions: map[string]int{"10.0.0.9": 2},
		Since:         &began,
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got  %+v\nwant %+v", v, want)
	}
}

// The record of all nodes is as young as the youngest, and none where one keeps none.
func TestWholeRecord(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	lists := map[string]status.MinionView{"n1": {Since: &early}, "n2": {Since: &late}}
	if got := completeSince(lists); got == nil || !got.Equal(late) {
		t.Errorf("%v", got)
	}
	lists["n3"] = status.MinionView{}
	if got := completeSince(lists); got != nil {
		t.Errorf("%v", got)
	}
}
