// Package settings reads the option saltern_postgres. It is pure, so that the tools of the master can
// check the option without the client of the database.
package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"saltern/master/value"
)

// Bounds and defaults of the spool, in MiB.
const (
	DefaultSpool = 1024
	leastSpool   = 16
	mostSpool    = 64 << 10
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
}

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// Parse reads the option. It returns nil for an empty one. No error quotes a value, since it may be
// secret.
func Parse(option *value.Map) (*Settings, error) {
	if option.Len() == 0 {
		return nil, nil
	}

	r := reader{m: option}
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
		Lookups:      r.flag("lookups"),
	}

	for key, text := range map[string]string{"host": s.Host, "database": s.Database, "user": s.User} {
		if text == "" {
			r.fail(key, errors.New("it is missing"))
		}
	}
	if s.Password != "" && s.PasswordFile != "" {
		r.fail("password", errors.New("password_file is set as well"))
	}
	if s.SSLMode == "" {
		s.SSLMode = "prefer"
	}
	if !slices.Contains(sslModes, s.SSLMode) {
		r.fail("sslmode", fmt.Errorf("it is one of %s", strings.Join(sslModes, ", ")))
	}
	if (s.SSLCert == "") != (s.SSLKey == "") {
		r.fail("sslcert", errors.New("sslcert and sslkey belong together"))
	}
	if len(r.faults) > 0 {
		slices.SortFunc(r.faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		var texts []string
		for _, err := range r.faults {
			texts = append(texts, err.Error())
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	return s, nil
}

// reader reads the keys of the option and collects faults.
type reader struct {
	m      *value.Map
	faults []error
}

func (r *reader) fail(key string, err error) {
	r.faults = append(r.faults, fmt.Errorf("%s: %w", key, err))
}

func (r *reader) text(key string) string {
	v, given := r.m.Get(key)
	if !given || v == nil {
		return ""
	}
	text, ok := v.(string)
	if !ok || len(text) > 4<<10 || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.fail(key, errors.New("it has to be a text of one line"))
		return ""
	}
	return text
}

func (r *reader) path(key string) string {
	path := r.text(key)
	if path != "" && !filepath.IsAbs(path) {
		r.fail(key, errors.New("it has to be a whole path"))
	}
	return path
}

func (r *reader) flag(key string) bool {
	v, given := r.m.Get(key)
	if !given || v == nil {
		return false
	}
	on, ok := v.(bool)
	if !ok {
		r.fail(key, errors.New("it has to be True or False"))
	}
	return on
}

func (r *reader) number(key string, standard, least, most int64) int {
	v, given := r.m.Get(key)
	if !given || v == nil {
		return int(standard)
	}
	n, ok := v.(int64)
	if !ok || n < least || n > most {
		r.fail(key, fmt.Errorf("it has to be a number from %d to %d", least, most))
	}
	return int(n)
}
