package git

import (
	"cmp"
	"os"
	"strings"
)

// inheritedEnv returns the environment variables of this process that are passed to git, ssh and
// curl.
func inheritedEnv() []string {
	return []string{"PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
}

// localEnv returns the environment variables for a git process that must not use the network.
func localEnv() []string {
	out := []string{"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_ATTR_NOSYSTEM=1", "GIT_NO_LAZY_FETCH=1", "LANGUAGE=C"}
	for _, name := range inheritedEnv() {
		if v := os.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// localOptions returns the options for every call of git. They prevent git from executing anything
// from a repository.
func localOptions(dir string) []string {
	argv := []string{"git", "--no-pager"}
	if dir != "" {
		argv = append(argv, "--git-dir="+dir)
	}
	return append(argv, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.askPass=",
		"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "protocol.ext.allow=never", "-c", "fetch.recurseSubmodules=false",
		"-c", "fetch.writeCommitGraph=false", "-c", "transfer.bundleURI=false", "-c", "core.alternateRefsCommand=")
}

// remoteCommand returns the command line and the environment for a git process that connects to a
// remote. Secrets are in the environment, which other users cannot read.
func (r *Remote) remoteCommand(dir, agent, knownHosts string) (argv, env []string) {
	allowed := r.transport
	if allowed == "http" {
		allowed = "http:https" // the remote may redirect to https
	}

	env = append(localEnv(), "GIT_ALLOW_PROTOCOL="+allowed)
	argv = append(localOptions(dir), "-c", "http.lowSpeedLimit=500", "-c", "http.lowSpeedTime=60")
	switch r.transport {
	case "http", "https":
		if r.SkipVerify {
			argv = append(argv, "-c", "http.sslVerify=false")
		}

		if r.Proxy != "" {
			env = append(env, "http_proxy="+r.Proxy, "https_proxy="+r.Proxy, "HTTPS_PROXY="+r.Proxy)
		}

		if r.Password != "" {
			// git may send the credential only to this host, even if the host redirects to another
			// one.
			host, _, _ := strings.Cut(strings.TrimPrefix(r.address, r.transport+"://"), "/")
			argv = append(argv, "-c", "credential.helper=",
				"-c", "credential."+r.transport+"://"+host+
					`.helper=!f() { test "$1" = get && `+
					`printf 'username=%s\npassword=%s\n' "$SALTERN_GIT_USER" "$SALTERN_GIT_PASSWORD"; }; f`)
			env = append(env, "SALTERN_GIT_USER="+cmp.Or(r.User, "git"), "SALTERN_GIT_PASSWORD="+r.Password)
		}
	case "ssh":
		ssh := "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4" +
			" -o ForwardAgent=no -o ClearAllForwardings=yes -o PermitLocalCommand=no"
		switch {
		case agent != "":
			ssh += " -o IdentityFile=none" // the agent holds the only key to use
		case r.PrivKey != "":
			ssh += " -o IdentitiesOnly=yes -i " + shellQuote(strings.ReplaceAll(r.PrivKey, "%", "%%"))
		}

		if knownHosts != "" {
			ssh += " -o UserKnownHostsFile=" +
				shellQuote(`"`+strings.NewReplacer("%", "%%", `"`, `\"`).Replace(knownHosts)+`"`)
		}

		env = append(env, "GIT_SSH_COMMAND="+ssh, "GIT_SSH_VARIANT=ssh")
		if agent == "" {
			agent = os.Getenv("SSH_AUTH_SOCK")
		}

		if agent != "" {
			env = append(env, "SSH_AUTH_SOCK="+agent)
		}
	}

	return argv, env
}

// shellQuote quotes a text so that a shell reads it as one word.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
