package conf

import "saltern/master/internal/oidc"

// OIDCOptions returns the options for the system oidc of external_auth. asks reports whether this
// master itself contacts a provider, under the conditions of [Master.LDAPOptions].
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

// checkOIDC adds a fault for OIDC options with which every log-in would fail.
func (a *assembly) checkOIDC(m *Master) {
	if o, asks := m.OIDCOptions(); asks && !a.loader.Tool {
		if err := oidc.Check(o); err != nil {
			a.addFault("external_auth", err)
		}
	}
}
