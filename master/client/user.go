package client

import (
	"os"

	"saltern/internal/audit"
)

// CurrentUser returns the user on whose behalf the client publishes jobs: the effective user, or
// "sudo_<name>" for root through sudo (salt/utils/user.py get_specific_user). getenv reads the
// environment; programs pass os.Getenv.
func CurrentUser(getenv func(string) string) string {
	name := EffectiveUser()
	if name == "root" {
		if s := getenv("SUDO_USER"); s != "" {
			return "sudo_" + s
		}
	}
	return name
}

// EffectiveUser returns the name of the effective user. If the user has no name, it returns the
// user's number as text.
func EffectiveUser() string { return audit.UserName(os.Geteuid()) }
