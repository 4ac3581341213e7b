/* The JSON files of a run that the runner reads again: name and path in the run directory and in
 * the bundle. A run view (bundle/run_view.h) has a member for each. A new file is one row here, and
 * its writer. Labels of wide streams are in the table of streams. */
#ifndef FP8LAB_RUNNER_RECORD_DOCUMENTS_H
#define FP8LAB_RUNNER_RECORD_DOCUMENTS_H

#define DOCUMENTS(X)                                                                              \
    X(run, "data/run.json")                                                                       \
    X(summary, "data/metrics/summary.json")                                                       \
    X(resolved, "data/experiment/resolved.json")                                                  \
    X(ingest, "data/experiment/ingest.json")                                                      \
    X(init, "data/experiment/init.json")                                                          \
    X(argv, "data/experiment/argv.json")                                                          \
    X(facts, "data/system/facts.json")                                                            \
    X(libraries, "data/system/libraries.json")                                                    \
    X(environment, "data/system/environment.json")                                                \
    X(image, "data/system/image.json")                                                            \
    X(commit, "data/source/commit.json")                                                          \
    X(decisions, "data/decisions.json")                                                           \
    X(certificates, "data/certificates.json")

/* Other paths that more than one file names. Those of streams are in the table of streams. */
#define RUN_PATHS(X)                                                                              \
    X(data_files, "data/experiment/data.json")                                                    \
    X(choices, "data/choices.txt")                                                                \
    X(checkpoints, "data/checkpoints")                                                            \
    X(audit_fault, "data/audit_fault.json")                                                       \
    X(tensorboard, "data/tensorboard")                                                            \
    X(dirty_patch, "data/source/dirty.patch")                                                     \
    X(crate, "data/ro-crate-metadata.json")                                                       \
    X(suite, "suite.json") /* beside data/, so no bundle has it: for who watches the run */

/* DOCUMENT_run is the path of run.json, RUN_PATH_choices that of choices.txt, and so on. */
#define DOCUMENT_PATH(name, path)                                                                 \
    static const char DOCUMENT_##name[] __attribute__((unused)) = path;
#define RUN_PATH(name, path) static const char RUN_PATH_##name[] __attribute__((unused)) = path;
DOCUMENTS(DOCUMENT_PATH)
RUN_PATHS(RUN_PATH)
#undef DOCUMENT_PATH
#undef RUN_PATH

#endif
