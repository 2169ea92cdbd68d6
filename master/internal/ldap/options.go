package ldap

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"saltern/internal/durable"
)

// Options are Salt's options auth.ldap.*. A field that is not set means Salt's default.
type Options struct {
	URI           string // one or more servers; replaces Server, Port and TLS
	Server, Port  string
	TLS, StartTLS bool
	NoVerify      bool
	// CA is saltern_ldap_ca: a file of certificate authorities to trust instead of the system's.
	CA     string
	BaseDN string
	// BindDN is the name of a service account. Without BindPassword it is the name of a user, and
	// may contain {{ username }}.
	BindDN, BindPassword string
	Anonymous            bool   // search without a service account
	Filter               string // filter to find a user's entry
	Scope                *int   // scope of Filter; nil: everything below BaseDN
	GroupOU              *string
	GroupClass           string
	GroupAttribute       string
	GroupBaseDN          string
	GroupFilter          string
	AccountAttribute     string
	PersonType           string
	ActiveDirectory      bool
	FreeIPA              bool
	StripDomains         []string
}

// loginWay is how a user's password is checked.
type loginWay int

const (
	byTemplate loginWay = iota // bind with the user's name inserted into BindDN
	bySearch                   // first search for the user, as a service account or anonymously
)

// loginPlan holds the checked and parsed options.
type loginPlan struct {
	way         loginWay
	bind        template
	filter      template
	groupFilter template
	scope       int
	groupBase   string
}

// orPreset returns s, or preset if s is "".
func orPreset(s, preset string) string {
	if s == "" {
		return preset
	}
	return s
}

// withDefaults returns the options, with unset fields replaced by the defaults of
// salt/auth/ldap.py, __defopts__.
func (o Options) withDefaults() Options {
	o.Server, o.Port = orPreset(o.Server, "localhost"), orPreset(o.Port, "389")
	o.GroupClass, o.GroupAttribute = orPreset(o.GroupClass, "posixGroup"), orPreset(o.GroupAttribute, "memberOf")
	o.AccountAttribute, o.PersonType = orPreset(o.AccountAttribute, "memberUid"), orPreset(o.PersonType, "person")
	if o.URI == "" {
		scheme := "ldap"
		if o.TLS {
			scheme = "ldaps"
		}

		host := o.Server
		if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
			host = "[" + host + "]"
		}

		o.URI = scheme + "://" + host + ":" + o.Port
	}

	return o
}

// makePlan checks the options. Its errors tell the administrator what to write in the option.
func (o Options) makePlan() (loginPlan, error) {
	p := loginPlan{scope: 2}
	if o.StartTLS && o.TLS {
		return p, errors.New("auth.ldap.tls and auth.ldap.starttls exclude each other: choose one")
	}

	if o.Scope != nil {
		p.scope = *o.Scope
	}

	if p.scope < 0 || p.scope > 2 {
		return p, fmt.Errorf("auth.ldap.scope is %d: use 0, 1 or 2", p.scope)
	}

	var err error
	if p.bind, err = parseTemplate("auth.ldap.binddn", o.BindDN); err != nil {
		return p, err
	}

	if p.filter, err = parseFilter("auth.ldap.filter", o.Filter); err != nil {
		return p, err
	}

	if p.groupFilter, err = parseFilter("auth.ldap.group_filter", o.GroupFilter); err != nil {
		return p, err
	}

	switch {
	case o.BindDN != "" && o.BindPassword == "" && o.Anonymous && !p.bind.variable(), o.BindDN == "" && o.Anonymous:
		p.way = bySearch
	case o.BindDN == "":
		return p, errors.New("auth.ldap.binddn is not set: write the name of a user with {{ username }} in it, or that of a service account with auth.ldap.bindpw and auth.ldap.filter")
	case o.BindPassword == "" && !p.bind.variable():
		return p, errors.New("auth.ldap.binddn has no {{ username }} and no auth.ldap.bindpw: its password would let everybody in under any name")
	case o.BindPassword == "":
		p.way = byTemplate
	case o.Anonymous:
		return p, errors.New("auth.ldap.anonymous and a service account (auth.ldap.binddn with auth.ldap.bindpw) exclude each other: remove one")
	default:
		p.way = bySearch
	}

	if p.way == bySearch && o.Filter == "" {
		return p, errors.New("auth.ldap.filter is not set: write how a user is found, for example (uid={{ username }})")
	}
	if o.FreeIPA && !o.ActiveDirectory && (o.GroupFilter == "" || o.GroupBaseDN == "") {
		return p, errors.New("auth.ldap.freeipa needs auth.ldap.group_basedn and auth.ldap.group_filter: without them nobody is in a group")
	}

	p.groupBase = o.BaseDN
	switch {
	case o.GroupOU == nil:
		p.groupBase = "ou=Groups," + o.BaseDN
	case *o.GroupOU != "":
		p.groupBase = "ou=" + *o.GroupOU + "," + o.BaseDN
	}

	return p, nil
}

// maxCA bounds the size of the file of certificate authorities, in bytes.
const maxCA = 4 << 20

func readCA(path string) (*x509.CertPool, error) {
	b, err := durable.Read(path, maxCA)
	if err != nil {
		return nil, fmt.Errorf("read saltern_ldap_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("read saltern_ldap_ca: %s holds no certificate in PEM", path)
	}
	return pool, nil
}
