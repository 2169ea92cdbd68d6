// Package settings reads the option saltern_postgres. It is pure, so that the tools of the master can
// check the option without the client of the database.
package settings

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"saltern/master/internal/optionmap"
	"saltern/master/value"
)

// Bounds and defaults of the spool, in MiB.
const (
	DefaultSpool = 1024
	leastSpool   = 16
	mostSpool    = 64 << 10

	DefaultEventsSpool = 256
)

// Settings are the values of the option.
type Settings struct {
	Host     string // name or address, or the folder of a Unix socket
	Port     int
	Database string
	User     string
	// Password and PasswordFile are both "" if the database asks for none. Only one of them is set. The
	// file is read for each connection.
	Password, PasswordFile string
	// SSLMode and the certificates mean what they mean in libpq.
	SSLMode, SSLRootCert, SSLCert, SSLKey string
	Spool                                 int // MiB that records may take on disk while they wait
	// Lookups means that runners read from the database what this node does not have any more.
	Lookups bool
	// Events means that the events of this master are written, too. EventsSpool is Spool for them.
	Events      bool
	EventsSpool int
}

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// Parse reads the option. It returns nil for an empty one. No error quotes a value, since it may be
// secret.
func Parse(option *value.Map) (*Settings, error) {
	if option.Len() == 0 {
		return nil, nil
	}

	r := reader{optionmap.Reader{Map: option}}
	s := &Settings{
		Host:         r.text("host"),
		Port:         r.number("port", 5432, 1, 65535),
		Database:     r.text("database"),
		User:         r.text("user"),
		Password:     r.text("password"),
		PasswordFile: r.path("password_file"),
		SSLMode:      r.text("sslmode"),
		SSLRootCert:  r.path("sslrootcert"),
		SSLCert:      r.path("sslcert"),
		SSLKey:       r.path("sslkey"),
		Spool:        r.number("spool", DefaultSpool, leastSpool, mostSpool),
		Lookups:      r.Bool("lookups"),
		Events:       r.Bool("events"),
		EventsSpool:  r.number("events_spool", DefaultEventsSpool, leastSpool, mostSpool),
	}

	for key, text := range map[string]string{"host": s.Host, "database": s.Database, "user": s.User} {
		if text == "" {
			r.Fail(key, "it is missing")
		}
	}
	if s.Password != "" && s.PasswordFile != "" {
		r.Fail("password", "password_file is set as well")
	}
	if s.SSLMode == "" {
		s.SSLMode = "prefer"
	}
	if !slices.Contains(sslModes, s.SSLMode) {
		r.Fail("sslmode", "it is one of %s", strings.Join(sslModes, ", "))
	}
	if (s.SSLCert == "") != (s.SSLKey == "") {
		r.Fail("sslcert", "sslcert and sslkey belong together")
	}
	if len(r.Faults) > 0 {
		slices.SortFunc(r.Faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		var texts []string
		for _, err := range r.Faults {
			texts = append(texts, err.Error())
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	return s, nil
}

// reader reads the keys of the option.
type reader struct{ optionmap.Reader }

func (r *reader) text(key string) string { return r.Line(key, 4<<10) }

func (r *reader) path(key string) string {
	path := r.text(key)
	if path != "" && !filepath.IsAbs(path) {
		r.Fail(key, "it has to be a whole path")
	}
	return path
}

func (r *reader) number(key string, standard, least, most int64) int {
	v, given := r.Map.Get(key)
	if !given || v == nil {
		return int(standard)
	}
	n, ok := v.(int64)
	if !ok || n < least || n > most {
		r.Fail(key, "it has to be a number from %d to %d", least, most)
	}
	return int(n)
}
