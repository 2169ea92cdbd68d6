package conf

import (
	"saltern/master/internal/loginurl"
	"saltern/master/internal/userfile"
	"saltern/master/value"
)

// UserFile returns the section for the system file of external_auth. asks reports whether this
// master reads the file of users itself, under the conditions of [Master.LDAPOptions].
func (m *Master) UserFile() (section *value.Map, asks bool) {
	return m.ExternalAuth.Map("file"), m.proves("file")
}

// LoginURL returns the section for the system rest of external_auth. asks reports whether this
// master calls the URL itself, under the conditions of [Master.LDAPOptions].
func (m *Master) LoginURL() (section *value.Map, asks bool) {
	return m.ExternalAuth.Map(loginurl.System), m.proves(loginurl.System)
}

// logins adds faults for sections of external_auth with which every log-in would fail.
func (a *assembly) logins(m *Master) {
	if a.loader.Tool {
		return
	}
	if section, asks := m.UserFile(); asks {
		if _, err := userfile.New(section); err != nil {
			a.addFault("external_auth", err)
		}
	}
	if section, asks := m.LoginURL(); asks {
		if _, err := loginurl.New(section); err != nil {
			a.addFault("external_auth", err)
		}
	}
}
