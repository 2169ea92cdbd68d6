package setup

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPropertyIsReadByItsType: the type of the answer says how text is read (F2).
func TestPropertyIsReadByItsType(t *testing.T) {
	yes := true
	for name, tt := range map[string]struct {
		key, text string
		want      Answers
	}{
		"digits with a zero first": {"cluster_id", "0042", Answers{Cluster: "0042"}},
		"a hash": {"secret", "#7Kestrel-Marble-oxide-42",
			Answers{Secret: "#7Kestrel-Marble-oxide-42"}},
		"null":   {"admin.password", "null", Answers{Admin: Admin{Password: "null"}}},
		"a date": {"admin.password", "2024-12-31", Answers{Admin: Admin{Password: "2024-12-31"}}},
		"quotes": {"node", `"double"`, Answers{Node: `"double"`}},
		"blanks at the ends": {"admin.password", " two blanks  ",
			Answers{Admin: Admin{Password: " two blanks  "}}},
		"a truth value":          {"api", "True", Answers{API: true}},
		"a truth value, no":      {"api", "No", Answers{}},
		"a truth value, pointer": {"storage.tls", "on", Answers{Storage: Storage{TLS: &yes}}},
		"a list": {"network.search", "a.example, b.example",
			Answers{Network: Network{Search: []string{"a.example", "b.example"}}}},
		"a list of one, colons": {"front", "::", Answers{Front: []string{"::"}}},
		"setting, text": {"settings.log.level", "debug",
			Answers{Settings: Tree{"log": map[string]any{"level": "debug"}}}},
		"setting, number": {"settings.front.publish_port", "14505",
			Answers{Settings: Tree{"front": map[string]any{"publish_port": 14505}}}},
		"setting, list": {"settings.api.names", "0042, a",
			Answers{Settings: Tree{"api": map[string]any{"names": []string{"0042", "a"}}}}},
		"setting, duration": {"settings.limits.stop_timeout", "20s",
			Answers{Settings: Tree{"limits": map[string]any{"stop_timeout": "20s"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var a Answers
			if err := a.Set(tt.key, tt.text); err != nil || !reflect.DeepEqual(a, tt.want) {
				t.Errorf("%+v %v, want %+v", a, err, tt.want)
			}
		})
	}
}

// TestPropertyErrorNamesIt: what cannot be taken is named, with what it may hold.
func TestPropertyErrorNamesIt(t *testing.T) {
	for _, tt := range []struct{ key, text, says string }{
		{"api", "maybe", "may hold true or false"},
		{"nod", "x", "is not an answer"},
		{"network", "x", "further answers"},
		{"settings", "{log: {level: debug}}", "not a key of appliance.yaml"},
		{"settings.nothing", "x", "not a key of appliance.yaml"},
		{"settings.front.publish_port", "many", "may hold a number"},
		{"settings.master.options.timeout", "15", "answers file"},
		{"node.x", "x", "is not an answer"},
		{"", "x", "is not an answer"},
		{"node", "a\x00b", "NUL"},
		{"node", "a\xff", "UTF-8"},
	} {
		t.Run(tt.key+"="+tt.says, func(t *testing.T) {
			var a Answers
			err := a.Set(tt.key, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.key) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

// TestEveryAnswerIsSettable: there is no answer that a property cannot give, but
// for whole pieces of appliance.yaml.
func TestEveryAnswerIsSettable(t *testing.T) {
	for _, key := range AnswerKeys() {
		var a Answers
		if err := a.Set(key, "true"); (err == nil) != (key != "settings") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestSSHKeysAreSplitAtLineEnds: a comma of a comment belongs to it (F2).
func TestSSHKeysAreSplitAtLineEnds(t *testing.T) {
	const one, two = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuT", "ssh-rsa AAAAB3NzaC1yc2E"
	for text, want := range map[string][]string{
		one + " Doe, Jane\n" + two + " work: laptop # mine\r\n\n# note\n": {one + " Doe, Jane",
			two + " work: laptop # mine"},
		one + " Doe, Jane":                       {one + " Doe, Jane"},
		one + " a," + two + " b":                 {one + " a", two + " b"},
		one + " a , " + two:                      {one + " a", two},
		one + " a " + two + " b":                 {one + " a", two + " b"},
		`from="10.0.0.1,10.0.0.2" ` + one + " x": {`from="10.0.0.1,10.0.0.2" ` + one + " x"},
		"junk, more":                             {"junk, more"},
		"":                                       nil,
		" , ":                                    nil,
	} {
		if got := SplitKeys(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSettingsComeThroughJSON: numbers are not made floats on their way to the
// disk and through the local API.
func TestSettingsComeThroughJSON(t *testing.T) {
	want := Answers{Settings: Tree{"master": map[string]any{"options": map[string]any{
		"big": 12345678901, "small": 15, "part": 0.5, "list": []any{1, "0042", true, nil}, "huge": 1e300,
	}}}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}

	var got Answers
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%#v %v", got, err)
	}

	rendered, err := Render(Answers{Settings: got.Settings}, Base{})
	if err != nil || !strings.Contains(string(rendered), "big: 12345678901\n") {
		t.Errorf("%s %v", rendered, err)
	}
}

// FuzzProperty: text answers arrive byte for byte, or not at all.
func FuzzProperty(f *testing.F) {
	for _, s := range []string{"0042", "#x", "~", "a\x00", "\xff", "true", "ssh-rsa AAAA x,ssh-rsa AAAA"} {
		for _, key := range []string{"node", "admin.ssh_keys", "api", "settings.log.level", "peers"} {
			f.Add(key, s)
		}
	}

	f.Fuzz(func(t *testing.T, key, text string) {
		var a Answers
		err := a.Set(key, text)
		if key != "admin.password" && key != "node" {
			return
		}

		got := a.Admin.Password + a.Node
		plain := utf8.ValidString(text) && !strings.Contains(text, "\x00")
		if (err == nil) != plain || err == nil && got != text {
			t.Fatalf("%s=%q: %q %v", key, text, got, err)
		}
	})
}
