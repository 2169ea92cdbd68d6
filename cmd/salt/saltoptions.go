package main

import (
	op "saltern/cmd/salt/optparse"
)

func (e *env) saltParser() *op.Parser {
	flag := func(help string, names ...string) op.Option {
		return op.Option{Names: names, Default: false, Help: help}
	}
	text := func(def any, help string, names ...string) op.Option {
		return op.Option{Names: names, Kind: op.Text, Default: def, Help: help}
	}
	p := e.parser("salt", "[options] '<target>' <function> [arguments]",
		"Run a function on many minions at once and show what they return.")
	p.Options = append(p.Options,
		timeoutOption(5), noParseOption(e.getenv), argsStdin,
		text(nil, "Executors to use instead of those of the minion's configuration.", "--module-executors"),
		text(nil, "Options for the executors.", "--executor-opts"),
		flag("Show all returns at once when the last one is there.", "-s", "--static"),
		flag("Show a progress bar and a summary in place of the returns.", "-p", "--progress"),
		flag("End a batch after the first bad return.", "--failhard"),
		flag("Publish the job and do not wait for returns.", "--async"),
		op.Option{
			Names:   []string{"--subset"},
			Kind:    op.Int,
			Default: 0,
			Help:    "Run on so many random minions of those that have the function.",
		},
		flag("Show the job id and more.", "-v", "--verbose"),
		op.Option{
			Names:   []string{"--hide-timeout"},
			Dest:    "show_timeout",
			Kind:    op.Unset,
			Default: true,
			Help:    "Do not show minions that did not answer.",
		},
		flag("Show the job id.", "--show-jid"),
		op.Option{
			Names:   []string{"-b", "--batch", "--batch-size"},
			Dest:    "batch",
			Kind:    op.Text,
			Default: "",
			Help:    "Run on so many minions at a time, a number or a percentage.",
		},
		op.Option{
			Names:   []string{"--batch-wait"},
			Kind:    op.Float,
			Default: 0.0,
			Help:    "Seconds to wait after a return of a batch before the next minion starts.",
		},
		op.Option{
			Names:   []string{"--batch-safe-limit"},
			Kind:    op.Int,
			Default: 0,
			Help:    "Make it a batch when at least so many minions match.",
		},
		text("8", "Size of the batch that --batch-safe-limit makes.", "--batch-safe-size"),
		op.Option{
			Names:   []string{"--return"},
			Kind:    op.Text,
			Default: "",
			Metavar: "RETURNER",
			Help:    "Have the minions send their returns to these returners as well.",
		},
		op.Option{
			Names:   []string{"--return_config"},
			Kind:    op.Text,
			Default: "",
			Metavar: "RETURNER_CONF",
			Help:    "Configuration that the returners use.",
		},
		op.Option{
			Names:   []string{"--return_kwargs"},
			Kind:    op.Text,
			Metavar: "RETURNER_KWARGS",
			Help:    "Options for the returners.",
		},
		op.Option{
			Names:   []string{"-d", "--doc", "--documentation"},
			Dest:    "doc",
			Default: false,
			Help:    "Show the documentation of a function or module, or all of it.",
		},
		text(",", "What separates the arguments of the functions of a compound command.", "--args-separator"),
		op.Option{
			Names:   []string{"--summary"},
			Dest:    "cli_summary",
			Default: false,
			Help:    "Count the returns in the end.",
		},
		text("", "Data to keep with the job, to find it by.", "--metadata"),
		flag("Have minions tell by an event that they took the job.", "--start-event"),
		op.Option{
			Names:   []string{"--output-diff"},
			Dest:    "state_output_diff",
			Default: false,
			Help:    "Show only states that changed something.",
		},
		flag("Print the configuration.", "--config-dump"),
		flag("Show the minions that the target should match and do nothing.", "--preview-target"),
	)

	p.Groups = append(targetOptions(true), outputOptions("salt"), logOptions("-l", "log_file"), eauthOptions())
	return p
}
