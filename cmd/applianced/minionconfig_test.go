package main

import (
	"testing"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// TestMinionConfig: the lines that a minion needs, with ports when they are not Salt's
// (m6).
func TestMinionConfig(t *testing.T) {
	front := status.Front{Addresses: []string{"10.0.0.1"}, PublishPort: 4505, RequestPort: 4506}
	other := status.Front{Addresses: []string{"10.0.0.1"}, PublishPort: 14605, RequestPort: 14606}
	for _, c := range []struct {
		name string
		doc  status.Document
		done *setup.Done
		want string // "": refused
	}{
		{name: "by hand", doc: status.Document{Front: front}, want: "master: 10.0.0.1\nmaster_alive_interval: 30\n"},
		{
			name: "other ports",
			doc:  status.Document{Front: other},
			want: "master: 10.0.0.1\nmaster_alive_interval: 30\nmaster_port: 14606\npublish_port: 14605\n",
		},
		{
			name: "virtual",
			doc:  status.Document{Front: front, Virtual: &status.Virtual{Address: "10.0.0.9"}},
			want: "master: 10.0.0.9\nmaster_alive_interval: 30\n",
		},
		{
			name: "set up", doc: status.Document{Front: front}, done: &setup.Done{
				Addresses: []string{"10.0.0.1", "10.0.0.2"},
				Finger:    "ab:cd",
			},
			want: "master:\n  - 10.0.0.1\n  - 10.0.0.2\nmaster_type: failover\nmaster_alive_interval: 30\nmaster_finger: \"ab:\\\n  cd\"\n",
		},
		{name: "arbiter", doc: status.Document{Front: front}, done: &setup.Done{Arbiter: true}},
		{name: "not yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := configOfMinions(c.doc, c.done)
			if (err != nil) != (c.want == "") || err == nil && got.Text != c.want {
				t.Errorf("%q %v, want %q", got.Text, err, c.want)
			}
		})
	}
}
