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
    X(argv, "data/experiment/argv.json")                                                          \
    X(facts, "data/system/facts.json")                                                            \
    X(libraries, "data/system/libraries.json")                                                    \
    X(environment, "data/system/environment.json")                                                \
    X(image, "data/system/image.json")                                                            \
    X(commit, "data/source/commit.json")                                                          \
    X(decisions, "data/decisions.json")

/* DOCUMENT_run is the path of run.json, and so on. */
#define DOCUMENT_PATH(name, path)                                                                 \
    static const char DOCUMENT_##name[] __attribute__((unused)) = path;
DOCUMENTS(DOCUMENT_PATH)
#undef DOCUMENT_PATH

#endif
