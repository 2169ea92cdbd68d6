package oidc

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Options are the options auth.oidc.*.
type Options struct {
	Issuer, ClientID   string
	Secret, SecretFile string // the client's secret, or the path of a file with the secret; a public client has no secret
	Scopes             []string
	UserClaim          string // name of the claim with the user's name
	GroupsClaim        string
	CA                 string // file of certificate authorities to trust instead of the system's
	// Redirect is the URL of the API for browsers. "" disables sign-ins with a browser.
	Redirect string
}

// withDefaults returns the options, with the defaults for those that are not set.
func (o Options) withDefaults() Options {
	if len(o.Scopes) == 0 {
		o.Scopes = []string{"openid", "profile", "email"}
	}

	if !slices.Contains(o.Scopes, "openid") {
		o.Scopes = append([]string{"openid"}, o.Scopes...)
	}

	if o.UserClaim == "" {
		o.UserClaim = "sub"
	}

	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}

	o.Redirect = strings.TrimSuffix(o.Redirect, "/")
	return o
}

// Check returns an error if an option is invalid. The error tells the administrator what to write
// in the option.
func Check(o Options) error {
	switch {
	case o.Issuer == "":
		return errors.New("auth.oidc.issuer is not set: write the address of the provider, as its /.well-known/openid-configuration gives it")
	case o.ClientID == "":
		return errors.New("auth.oidc.client_id is not set: register this master at the provider and write the name it gets there")
	case o.Secret != "" && o.SecretFile != "":
		return errors.New("auth.oidc.client_secret and auth.oidc.client_secret_file exclude each other: remove one")
	}

	for _, a := range []struct{ name, address string }{
		{"auth.oidc.issuer", o.Issuer},
		{"auth.oidc.redirect", o.Redirect},
	} {
		if a.address == "" {
			continue
		}

		err := checkAddress(a.address)
		if err == nil && strings.Contains(a.address, "?") {
			err = fmt.Errorf("%.200q has a question mark: write https://HOST/PATH", a.address)
		}

		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}

	return nil
}

// checkAddress returns an error if tokens would be sent to the URL unencrypted over a network.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%.200q is not of the form https://HOST/PATH", address)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	near := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	if u.Scheme != "https" && !(u.Scheme == "http" && near) {
		return fmt.Errorf("%.200q does not begin with https://", address)
	}
	return nil
}
