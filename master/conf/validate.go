package conf

import (
	"cmp"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// levels lists Salt's names of log levels (salt/_logging).
var levels = []string{"all", "garbage", "trace", "debug", "profile", "info", "warning", "error", "critical", "quiet"}

// servedBackends lists the backends of the file server that this master has.
var servedBackends = []string{"roots", "gitfs", "minionfs"}

// validate adds faults for values that the master cannot use, and notes about doubtful values.
func (a *assembly) validate(m *Master) {
	for _, p := range []struct {
		name string
		port int
	}{{"publish_port", m.PublishPort}, {"ret_port", m.RetPort}, {"cluster_pool_port", m.ClusterPoolPort},
		{"saltern_front_publish_port", m.FrontPublishPort}} {
		if p.port < 0 || p.port > 65535 || p.port == 0 && p.name != "saltern_front_publish_port" {
			a.addFault(p.name, fmt.Errorf("%d is not a port", p.port))
		}
	}

	oneOf := func(name, v string, allowed ...string) {
		if !slices.Contains(allowed, v) {
			a.addFault(name, fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", ")))
		}
	}

	oneOf("publish_signing_algorithm", m.PublishSigningAlgorithm, "PKCS1v15-SHA1", "PKCS1v15-SHA224")
	oneOf("cluster_encryption_algorithm", m.ClusterEncryptionAlgorithm, "OAEP-SHA1", "OAEP-SHA224")
	oneOf("transport", m.Transport, "zeromq")
	oneOf("pillar_cache_backend", m.PillarCacheBackend, "disk", "memory")
	oneOf("hash_type", m.HashType, "md5", "sha1", "sha224", "sha256", "sha384", "sha512")
	oneOf("top_file_merging_strategy", m.TopFileMergingStrategy, "merge", "merge_all", "same")
	oneOf("saltern_event_readers", cmp.Or(m.EventReaders, "granted"), "granted", everyLogin)
	oneOf("log_level", strings.ToLower(m.LogLevel), levels...)

	if m.LogLevelLogfile != "" {
		oneOf("log_level_logfile", strings.ToLower(m.LogLevelLogfile), levels...)
	}

	if m.KeySize < 2048 {
		a.addFault("keysize", fmt.Errorf("%d bits, at least 2048", m.KeySize))
	}

	if bad := strings.ContainsAny(m.ID, "/\\\x00\n"); bad || m.ID == "." || m.ID == ".." {
		a.addFault("id", fmt.Errorf("%q cannot be an id", m.ID))
	}

	atLeast := func(name string, n, least int) {
		if n < least {
			a.addFault(name, fmt.Errorf("%d is below %d", n, least))
		}
	}

	atLeast("max_minions", m.MaxMinions, 0)
	atLeast("file_recv_max_size", m.FileRecvMaxSize, 0)
	atLeast("pub_hwm", m.PubHWM, 0)
	atLeast("saltern_runner_max", m.RunnerMax, 0)
	atLeast("saltern_history_days", m.HistoryDays, -1)
	atLeast("saltern_history_bytes", m.HistoryBytes, 0)
	atLeast("saltern_runner_computing", m.RunnerComputing, 0)
	atLeast("file_buffer_size", m.FileBufferSize, 1)
	atLeast("max_event_size", m.MaxEventSize, 1)

	for _, name := range m.FileserverBackend {
		if !a.loader.Tool && !slices.Contains(servedBackends, strings.TrimPrefix(name, "-")) {
			a.addFault("fileserver_backend",
				fmt.Errorf("this master does not serve files from %q; only %s: keep a checkout of the files below a directory of file_roots",
					strings.TrimSuffix(name, "fs"), strings.Join(servedBackends, ", ")))
		}
	}

	a.ignoreRegex(m)
	a.expressions(m)
	a.reactorFile(m)
	a.checkLDAP(m)
	a.checkOIDC(m)
	a.logins(m)
	a.schedule(m)
	a.checkLog(m)
	a.outgoing(m)
	a.composites(m)

	// The path of a Unix socket may have at most 107 bytes. No name in sock_dir is longer than this
	// one.
	if n := len(m.SockDir + "/master_event_pull.ipc"); n > 107 && !a.loader.Tool {
		a.badFrom("sock_dir", fmt.Errorf("path is %d bytes too long for a socket", n-107), "cachedir", "root_dir")
	}

	a.noteRisks(m)
}

// ignoreRegex drops the patterns of file_ignore_regex that cannot be compiled, as Salt does, and
// adds a note about each.
func (a *assembly) ignoreRegex(m *Master) {
	if len(m.FileIgnoreRegex) == 0 {
		return
	}

	kept := make([]string, 0, len(m.FileIgnoreRegex))
	raw := make([]any, 0, len(m.FileIgnoreRegex))
	for _, p := range m.FileIgnoreRegex {
		if _, err := regexp.Compile(p); err != nil {
			a.remark(slog.LevelWarn, "file_ignore_regex", "pattern %q is ignored: %v", p, err)
			continue
		}
		kept, raw = append(kept, p), append(raw, p)
	}

	m.FileIgnoreRegex = kept
	a.opts.Set("file_ignore_regex", raw)
}

// noteRisks adds notes about settings that admit everybody, and a note if the option user names
// another account than that of this process.
func (a *assembly) noteRisks(m *Master) {
	if self := a.loader.defaultUser(); m.User != "" && m.User != self {
		a.remark(slog.LevelWarn, "user",
			"this process runs as %s and does not become %s; start it as that user", self, m.User)
	}
	if m.OpenMode {
		a.remark(slog.LevelWarn, "open_mode", "any key is accepted for any id")
	}
	if m.AutoAccept {
		a.remark(slog.LevelWarn, "auto_accept", "every minion that asks is accepted")
	}
	if m.MinimumAuthVersion < 3 {
		a.remark(slog.LevelWarn, "minimum_auth_version", "old sign-in versions can be replayed and are accepted")
	}
}
