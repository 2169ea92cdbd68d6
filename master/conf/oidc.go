package conf

import "saltern/master/internal/oidc"

// OIDCOptions returns the options of external_auth's system oidc. asks reports whether this master
// asks a provider, as with [Master.LDAPOptions].
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

// checkOIDC adds a fault for options with which no log-in could succeed.
func (a *assembly) checkOIDC(m *Master) {
	if o, asks := m.OIDCOptions(); asks && !a.loader.Tool {
		if err := oidc.Check(o); err != nil {
			a.addFault("external_auth", err)
		}
	}
}
