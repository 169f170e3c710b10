"""Models times beyond what was measured, and says how far the models can be believed.

`law` is the simple law of a run with p ranks, `tail` the slowest of p starts, `two_term` splits a
measured overhead into work and communication. All are pure: tables in, tables out; equal inputs
and seeds give equal results. `read` takes the tables from records, `form` makes what is kept of
a model: JSON by `schema/model.json`, and CSV.

Every modelled value is called a model wherever it is shown, with the error of the same model on
measured points that it was not fitted to. Where that error is as large as the effect, the words
are that the model cannot tell.
"""
