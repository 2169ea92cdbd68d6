package mine

import (
	"path"
	"regexp"
	"testing"

	"saltern/master/target"
	"saltern/master/value"
)

func service(acl *value.Map, asked *[]string) *Service {
	mines := map[string]*value.Map{
		"web1": value.NewMap("ip", "10.0.0.1", "secret", value.NewMap(aclID, int64(1), aclData, "s", allowTgt, "db*")),
		"web2": value.NewMap("ip", "10.0.0.2", "open", value.NewMap(aclID, int64(1), aclData, "o")),
		"db1":  value.NewMap("port", int64(5432)),
	}

	return &Service{
		Data: func(id string) (*value.Map, bool) { m, ok := mines[id]; return m, ok },
		Resolve: func(_ *target.Effort, tgt any, typ string, among ...string) ([]string, error) {
			if asked != nil {
				*asked = append(*asked, typ)
			}

			var out []string
			if among == nil {
				among = []string{"db1", "nothing", "web1", "web2"}
			}

			for _, id := range among {
				if ok, _ := path.Match(tgt.(string), id); ok {
					out = append(out, id)
				}
			}

			return out, nil
		},
		ACL: acl, Restricted: acl != nil,
		Match: func(p, s string) bool { return regexp.MustCompile("^(?:" + p + ")").MatchString(s) },
	}
}

func TestGet(t *testing.T) {
	tests := []struct {
		name, id string
		acl      *value.Map
		load     *value.Map
		want     string
	}{
		{"one function", "db1", nil, value.NewMap("tgt", "web*", "fun", "ip"), `{"web1":"10.0.0.1","web2":"10.0.0.2"}`},
		{"none has it", "db1", nil, value.NewMap("tgt", "*", "fun", "nope"), `{}`},
		{"two by comma", "db1", nil, value.NewMap("tgt", "*", "fun", "ip,port"),
			`{"port":{"db1":5432},"ip":{"web1":"10.0.0.1","web2":"10.0.0.2"}}`},
		{"a list of one", "db1", nil, value.NewMap("tgt", "web1", "fun", []any{"ip"}), `{"ip":{"web1":"10.0.0.1"}}`},
		{"value for db only, asked by db", "db1", nil, value.NewMap("tgt", "*", "fun", "secret"), `{"web1":"s"}`},
		{"value for db only, asked by web", "web2", nil, value.NewMap("tgt", "*", "fun", "secret"), `{}`},
		{"wrapped without targets", "web1", nil, value.NewMap("tgt", "*", "fun", "open"), `{"web2":"o"}`},
		{"fun is a number", "web1", nil, value.NewMap("tgt", "*", "fun", int64(4)), `{}`},
		{"permitted", "db1", value.NewMap("db.*", []any{"ip"}), value.NewMap("tgt", "web1", "fun", "ip"),
			`{"web1":"10.0.0.1"}`},
		{"function not permitted", "db1", value.NewMap("db.*", []any{"port"}),
			value.NewMap("tgt", "web1", "fun", "ip"), `{}`},
		{"minion not permitted", "web1", value.NewMap("db.*", []any{".*"}),
			value.NewMap("tgt", "web1", "fun", "ip"), `{}`},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := service(tt.acl, nil).Get(nil, tt.id, tt.load)
			if err != nil {
				t.Fatal(err)
			}
			if s := text(got); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}
}

// TestPillarTargetsAreExact keeps a mine query from guessing pillar values.
func TestPillarTargetsAreExact(t *testing.T) {
	for in, want := range map[string]string{
		"pillar":   "pillar_exact",
		"compound": "compound_pillar_exact",
		"glob":     "glob",
	} {
		var asked []string
		if _, err := service(nil, &asked).Get(nil, "db1",
			value.NewMap("tgt", "*", "fun", "ip", "tgt_type", in)); err != nil || asked[0] != want {
			t.Errorf("%s is resolved as %v, %v", in, asked, err)
		}
	}
}
