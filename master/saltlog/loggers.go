package saltlog

import (
	"fmt"
	"log/slog"
	"strings"
)

// loggers maps packages, by the beginning of their path, to the loggers of the Salt modules that do
// the same work.
var loggers = []struct{ pkg, logger string }{
	{"saltern/master/cache", "salt.cache"},
	{"saltern/master/cluster", "salt.cluster"},
	{"saltern/master/conf", "salt.config"},
	{"saltern/master/event", "salt.utils.event"},
	{"saltern/master/internal/acl", "salt.acl"},
	{"saltern/master/internal/auth", "salt.channel.server"},
	{"saltern/master/internal/eauth", "salt.auth"},
	{"saltern/master/internal/fileserver", "salt.fileserver"},
	{"saltern/master/internal/git", "salt.utils.gitfs"},
	{"saltern/master/internal/ldap", "salt.auth.ldap"},
	{"saltern/master/internal/oidc", "salt.auth"},
	{"saltern/master/internal/pillar", "salt.pillar"},
	{"saltern/master/internal/reactor", "salt.utils.reactor"},
	{"saltern/master/internal/schedule", "salt.utils.schedule"},
	{"saltern/master/internal/userfile", "salt.auth.file"},
	{"saltern/master/internal/wheel", "salt.wheel"},
	{"saltern/master/jobs", "salt.utils.job"},
	{"saltern/master/keys", "salt.key"},
	{"saltern/master/internal/pyfork", "salt.runner"},
	{"saltern/master/internal/pyhost", "salt.runner"},
	{"saltern/master/pyrunner", "salt.runner"},
	{"saltern/master/restapi", "salt.netapi.rest_cherrypy"},
	{"saltern/master/runner", "salt.runner"},
	{"saltern/master/zmtp", "salt.transport.zeromq"},
}

// loggerOf returns the logger of a function's package, or program if the package has none.
func loggerOf(function, program string) string {
	for _, l := range loggers {
		if strings.HasPrefix(function, l.pkg) {
			return l.logger
		}
	}
	return program
}

// granularLevels holds the option log_granular_levels: the least level of each logger and of the
// loggers below it. A line is written only if it reaches both this level and the level of its sink
// (Python's logging.getEffectiveLevel).
type granularLevels map[string]slog.Level

// levelOf returns the least level of a logger: the logger's own level, or that of the nearest
// logger above it that has one.
func (g granularLevels) levelOf(logger string) slog.Level {
	if len(g) == 0 {
		return LevelGarbage
	}

	for {
		if level, set := g[logger]; set {
			return level
		}

		dot := strings.LastIndexByte(logger, '.')
		if dot < 0 {
			break
		}

		logger = logger[:dot]
	}

	if level, set := g[rootLogger]; set {
		return level
	}

	return LevelGarbage
}

// rootLogger is the name of the logger above all others.
const rootLogger = "root"

// setLevel sets the level of a logger from an option, which is a name or a number of Python's
// logging. With "all" or 0, the level of the logger above applies.
func (g granularLevels) setLevel(logger string, level any) error {
	if logger == "" {
		logger = rootLogger
	}

	switch level := level.(type) {
	case string:
		l, err := ParseLevel(level)
		if err != nil {
			return fmt.Errorf("%.80s: %w", logger, err)
		}
		if strings.EqualFold(level, "all") {
			return nil
		}

		g[logger] = l
	case int64:
		if level != 0 {
			g[logger] = pythonLevel(level)
		}
	default:
		return fmt.Errorf("%.80s: a level is a name or a number", logger)
	}

	return nil
}

// pythonLevel returns the lowest slog level whose number in Python is at least n.
func pythonLevel(n int64) slog.Level {
	switch {
	case n <= 1:
		return LevelGarbage
	case n <= 5:
		return LevelTrace
	case n <= 10:
		return slog.LevelDebug
	case n <= 15:
		return LevelProfile
	case n <= 20:
		return slog.LevelInfo
	case n <= 30:
		return slog.LevelWarn
	case n <= 40:
		return slog.LevelError
	case n <= 50:
		return LevelCritical
	}

	return LevelQuiet
}

// CheckGranular returns an error if an entry of log_granular_levels is invalid.
func CheckGranular(logger string, level any) error { return granularLevels{}.setLevel(logger, level) }
