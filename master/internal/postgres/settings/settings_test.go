package settings

import (
	"strings"
	"testing"

	"saltern/master/value"
)

func TestParse(t *testing.T) {
	s, err := Parse(value.NewMap("host", "db", "database", "salt", "user", "u", "password", "p w'\\"))
	if err != nil || s.Port != 5432 || s.SSLMode != "prefer" || s.Spool != DefaultSpool || s.Events || s.EventsSpool != 256 || s.Password != "p w'\\" {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := Parse(nil); s != nil || err != nil {
		t.Errorf("without the option: %+v %v", s, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, change := range map[string]func(*value.Map){
		"host: it is missing":       func(m *value.Map) { m.Delete("host") },
		"user: it has to be":        func(m *value.Map) { m.Set("user", "a\nb") },
		"port: it has to be":        func(m *value.Map) { m.Set("port", int64(70000)) },
		"spool: it has to be":       func(m *value.Map) { m.Set("spool", int64(0)) },
		"a number from 16 to 65536": func(m *value.Map) { m.Set("spool", int64(64<<10)+1) },
		"sslmode: it is one of":     func(m *value.Map) { m.Set("sslmode", "SECRET") },
		"sslcert: sslcert and":      func(m *value.Map) { m.Set("sslcert", "/x") },
		"password: password_file":   func(m *value.Map) { m.Set("password_file", "/x") },
		"sslkey: it has to be":      func(m *value.Map) { m.Set("sslkey", "x") },
		"lookups: it has to be":     func(m *value.Map) { m.Set("lookups", "yes") },
		"events: it has to be":      func(m *value.Map) { m.Set("events", int64(1)) },
		"events_spool: it has":      func(m *value.Map) { m.Set("events_spool", int64(15)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := value.NewMap("host", "db", "database", "salt", "user", "u", "password", "SECRET")
			change(m)
			_, err := Parse(m)
			if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%v", err)
			}
		})
	}
}
