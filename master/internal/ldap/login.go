package ldap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	ldapv3 "github.com/go-ldap/ldap/v3"
)

// Time limits.
const (
	connectTime = 3 * time.Second  // time to connect to one server
	loginTime   = 15 * time.Second // time of a log-in or a search with all its queries
)

// Bounds of name and password.
const (
	maxName     = 256  // in bytes
	maxPassword = 1024 // in bytes
)

// Directory is a client of the servers of one directory. It is safe for concurrent use.
type Directory struct {
	opts        Options
	plan        loginPlan
	servers     []server
	log         *slog.Logger
	now         func() time.Time
	preferred   atomic.Int32 // index of the server that answered last
	connectTime time.Duration
	loginTime   time.Duration
	computers   computers
}

// New returns a Directory. It returns an error that names the option if an option is invalid. log
// gets the lines that untrusted senders can provoke.
func New(o Options, log *slog.Logger, now func() time.Time) (*Directory, error) {
	o = o.withDefaults()
	p, err := o.makePlan()
	if err != nil {
		return nil, err
	}

	d := &Directory{
		opts:        o,
		plan:        p,
		log:         log,
		now:         now,
		connectTime: connectTime,
		loginTime:   loginTime,
		computers:   newComputers(),
	}

	if d.servers, err = servers(o.URI); err != nil {
		return nil, err
	}

	d.logWarnings()
	return d, nil
}

// logWarnings logs a warning for each insecure option.
func (d *Directory) logWarnings() {
	if d.opts.NoVerify {
		d.log.Warn("log-ins by ldap trust any certificate (auth.ldap.no_verify): whoever is on the way reads passwords")
	}

	if d.opts.CA != "" {
		if _, err := readCA(d.opts.CA); err != nil {
			d.log.Warn("log-ins by ldap fail until this is fixed", "error", err)
		}
	}

	for _, s := range d.servers {
		ip, err := netip.ParseAddr(s.host)
		if near := s.network == "unix" || s.host == "localhost" ||
			err == nil && ip.IsLoopback(); !near && !s.tls && !d.opts.StartTLS {
			d.log.Warn("log-ins by ldap send passwords in the clear: write ldaps:// or set auth.ldap.starttls",
				"server", s.name)
		}
	}
}

// Check returns an error for invalid options.
func Check(o Options) error {
	_, err := New(o, slog.New(slog.DiscardHandler), time.Now)
	return err
}

// Login checks a user's password. It returns the user's name in the directory's spelling, and the
// names of the user's groups. name is "" if the directory does not know the user or refuses the
// password. An error means that the directory did not answer; it says nothing about the password.
func (d *Directory) Login(ctx context.Context, user, password string) (name string, groups []string, err error) {
	if password == "" || len(password) > maxPassword || !plausible(user) {
		return "", nil, nil
	}

	ctx, cancel := context.WithTimeout(ctx, d.loginTime)
	defer cancel()
	s, err := d.dialAny(ctx)
	if err != nil {
		return "", nil, err
	}
	defer s.sayGoodbye()

	own := entry{dn: d.plan.bind.renderName(user)}
	if d.plan.way == bySearch {
		if own, err = d.findUser(s, user); own.dn == "" || err != nil {
			return "", nil, err
		}
	}

	if err := s.bindAs(own.dn, password); err != nil {
		return "", nil, d.refusal(err, user, own.dn)
	}

	if d.plan.way == bySearch {
		err = d.bindService(s)
	} else {
		own, err = d.readEntry(s, own.dn, user)
	}

	if err != nil {
		return "", nil, err
	}

	name = d.nameIn(own, user)
	if groups, err = d.groups(s, name); err != nil {
		return "", nil, err
	}

	return name, groups, nil
}

// plausible reports whether a text may be a user name.
func plausible(user string) bool {
	return user != "" && len(user) <= maxName && utf8.ValidString(user) &&
		!strings.ContainsFunc(user, unicode.IsControl)
}

// refusal examines the error of a bind. It returns nil if the directory refused the password, and
// an error if the directory could not check the password.
func (d *Directory) refusal(err error, user, dn string) error {
	r, ok := errors.AsType[*resultError](err)
	if !ok {
		return err
	}
	switch r.code {
	case invalidCredentials, inappropriateAuth, unwillingToPerform, constraintViolation, noSuchObject,
		invalidDNSyntax, insufficientAccessRights:
		d.log.Info("the directory refuses a log-in", "user", user, "dn", dn, "error", r)
		return nil
	}
	return fmt.Errorf("log in to the directory as %.200q: %w", dn, err)
}

// bindService binds as the service account, or anonymously if no service account is configured.
func (d *Directory) bindService(s *session) error {
	if d.opts.BindPassword == "" {
		return s.unbind()
	}
	if err := s.bindAs(d.opts.BindDN, d.opts.BindPassword); err != nil {
		return fmt.Errorf("log in to the directory as the service account %.200q (auth.ldap.binddn, auth.ldap.bindpw): %w",
			d.opts.BindDN, err)
	}
	return nil
}

// findUser returns the entry of a user, including the attributes with his names. It returns the
// zero entry if there is none.
func (d *Directory) findUser(s *session, user string) (entry, error) {
	if d.opts.BindPassword != "" {
		if err := d.bindService(s); err != nil {
			return entry{}, err
		}
	}

	filter := d.plan.filter.render(user, ldapv3.EscapeFilter)
	found, err := s.search(query{
		base:   d.opts.BaseDN,
		scope:  d.plan.scope,
		filter: filter,
		attrs:  d.nameAttributes(),
		most:   1,
	})

	switch {
	case errors.Is(err, errMore):
		return entry{}, fmt.Errorf("several entries of the directory are %.200q: make auth.ldap.filter narrower", user)
	case err != nil:
		return entry{}, fmt.Errorf("look for a user below auth.ldap.basedn %.200q: %w", d.opts.BaseDN, err)
	case len(found) == 0:
		d.log.Info("the directory does not know a user", "user", user)
		return entry{}, nil
	}

	return found[0], nil
}

// noAttributes is the attribute list of a search that needs no attributes (RFC 4511, 4.5.1.8).
const noAttributes = "1.1"
