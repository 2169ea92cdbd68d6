package conf

import "saltern/master/internal/oidc"

// OIDCOptions are the options of external_auth's system oidc. asks reports whether this
// master asks a provider, as with [Master.LDAPOptions].
func (m *Master) OIDCOptions() (o oidc.Options, asks bool) {
	return oidc.Options{
		Issuer:      m.OIDCIssuer,
		ClientID:    m.OIDCClientID,
		Secret:      m.OIDCSecret,
		SecretFile:  m.OIDCSecretFile,
		Scopes:      m.OIDCScopes,
		UserClaim:   m.OIDCUserClaim,
		GroupsClaim: m.OIDCGroupsClaim,
		CA:          m.OIDCCA,
		Redirect:    m.OIDCRedirect,
	}, m.proves("oidc")
}

// oidc refuses options with which nobody could log in.
func (a *assembly) oidc(m *Master) {
	if o, asks := m.OIDCOptions(); asks && !a.loader.Tool {
		if err := oidc.Check(o); err != nil {
			a.bad("external_auth", err)
		}
	}
}
