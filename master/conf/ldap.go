package conf

import (
	"os"
	"path/filepath"

	"saltern/master/internal/ldap"
	"saltern/master/value"
)

// LDAPOptions returns the options for the system ldap of external_auth. asks reports whether this
// master queries the directory itself. asks is false if the configuration does not use the system,
// or if a module of the administrator (auth_dirs, extension_modules) replaces Salt's module.
func (m *Master) LDAPOptions() (o ldap.Options, asks bool) {
	asks = m.proves("ldap")
	o = ldap.Options{
		URI:              m.LDAPURI,
		Server:           m.LDAPServer,
		Port:             m.LDAPPort,
		TLS:              m.LDAPTLS,
		StartTLS:         m.LDAPStartTLS,
		NoVerify:         m.LDAPNoVerify,
		CA:               m.LDAPCA,
		BaseDN:           m.LDAPBaseDN,
		BindDN:           m.LDAPBindDN,
		BindPassword:     m.LDAPBindPassword,
		Anonymous:        m.LDAPAnonymous,
		Filter:           m.LDAPFilter,
		GroupClass:       m.LDAPGroupClass,
		GroupAttribute:   m.LDAPGroupAttribute,
		GroupBaseDN:      m.LDAPGroupBaseDN,
		GroupFilter:      m.LDAPGroupFilter,
		AccountAttribute: m.LDAPAccountAttribute,
		PersonType:       m.LDAPPersonType,
		ActiveDirectory:  m.LDAPActiveDirectory,
		FreeIPA:          m.LDAPFreeIPA,
		StripDomains:     m.LDAPStripDomains,
	}

	if n, ok := m.LDAPScope.(int64); ok {
		scope := int(min(max(n, -1), 3))
		o.Scope = &scope
	}

	if m.LDAPGroupOU != nil {
		ou := ""
		if value.Truth(m.LDAPGroupOU) {
			ou = value.Str(m.LDAPGroupOU)
		}
		o.GroupOU = &ou
	}

	return o, asks
}

// PAMHelper returns the socket of the helper that checks passwords for the system pam of
// external_auth. It returns "" when this master does not use the helper.
func (m *Master) PAMHelper() string {
	if !m.proves("pam") {
		return ""
	}
	return m.PAMSocket
}

// proves reports whether this master itself authenticates the users of a system of external_auth:
// the configuration uses the system, and no module of the administrator has its name.
func (m *Master) proves(system string) bool {
	for _, dir := range append([]string{filepath.Join(m.ExtensionModules, "auth")}, m.AuthDirs...) {
		if _, err := os.Stat(filepath.Join(dir, system+".py")); err == nil {
			return false
		}
	}
	_, used := m.ExternalAuth.Get(system)
	return used
}

// checkLDAP adds a fault for LDAP options with which every log-in would fail.
func (a *assembly) checkLDAP(m *Master) {
	if o, asks := m.LDAPOptions(); asks && !a.loader.Tool {
		if err := ldap.Check(o); err != nil {
			a.addFault("external_auth", err)
		}
	}
}
